"""Ways to show the same: permanent lines, lines with a time, JSON lines; `live` has the block."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

from gputasks.report import text
from gputasks.report.glyphs import glyphs, spell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gputasks.events import Event
    from gputasks.report.stream import Stream
    from gputasks.report.view import TaskView

PROGRESS_S = 30.0
COMPLETE = float("inf")


class Face:
    """What a reporter shows; lines by default."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.glyphs = glyphs(stream.encoding, os.environ)

    def say(self, line: str) -> None:
        """One permanent line, or several."""
        self.stream.line(spell(text.clean(line), self.glyphs))

    def quote(self, output: str) -> None:
        """What a task printed."""
        self.say(output)

    def started(self, view: TaskView, reasons: Sequence[str]) -> None:
        """A task starts."""
        why = f"  runs: {text.reasons_text(reasons)}" if reasons else "  runs"
        self.say(f"{view.name}{why}")

    def event(self, view: TaskView, event: Event) -> None:
        """Something happened in a running task."""
        line = text.event_text(event)
        if event["kind"] == "started" and view.waited:
            # What was said before the wait may not hold any more.
            line = f"runs: {text.reasons_text(event.get('reasons') or [])}"
        if line:
            self.say(f"{view.name}: {line}")

    def tick(self, views: Sequence[TaskView]) -> None:
        """Time passes."""

    def ended(self, view: TaskView, failure: str | None, output: str, now: float) -> None:
        """A task ended; `failure` is the whole text of its error."""
        finished = view.finished or {
            "outcome": "succeeded" if failure is None else "failed",
            "duration_s": now - view.started,
        }
        self.say(text.finished_text(view.name, finished))
        if output:
            self.quote(output.rstrip("\n"))
        if failure is not None:
            self.say(failure)

    def cut_off(self, view: TaskView, now: float) -> None:
        """doit ends before the task could: a signal."""
        finished = view.finished or {"outcome": "interrupted", "duration_s": now - view.started}
        line = text.finished_text(view.name, finished)
        self.say(line + (f" · log: {view.log}" if view.log else ""))

    def skipped(self, name: str, why: str) -> None:
        """Nothing to do."""
        self.say(f"-- {name} ({why})")

    def problem(self, message: str) -> None:
        """doit itself has something to say."""
        self.say(message if message.startswith("error: ") else f"error: {message}")

    def close(self) -> None:
        """Leave the terminal as it was."""

    def without_block(self) -> Face:
        """The same without anything that moves."""
        return self

    def done(self, *, failed: bool) -> None:
        """All is over."""


class PlainFace(Face):
    """One timestamped line per event that matters, progress seldom."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self._every = float(os.environ.get("GPUTASKS_PROGRESS_S") or PROGRESS_S)
        self._said: dict[str, float] = {}
        self._late: dict[str, list[int]] = {}

    def say(self, line: str) -> None:
        """A line with the time before it; further lines of an error stand alone."""
        if line.startswith(("-- ", "error: ")):
            super().say(line)
        else:
            super().say(f"{text.stamp(time.time())} {line}")

    def quote(self, output: str) -> None:
        """Without a time: it was printed earlier."""
        super().say(output)

    def event(self, view: TaskView, event: Event) -> None:
        """Progress is a line at most every 30 s, and one when it is complete."""
        super().event(view, event)
        if event["kind"] == "attempt":
            self._said.pop(view.name, None)
        if event.get("phase") in ("pull", "build", "push") and event.get("text"):
            self.say(f"{view.name}: {text.one_line(str(event['text']))}")
        if event["kind"] == "attempt":
            self._said.pop(view.name, None)
        if event["kind"] != "progress" or view.phase == "build":
            return  # steps of a build are told one by one
        now, complete = time.monotonic(), view.fraction() == 1.0
        last = self._said.setdefault(view.name, now)
        if now - last >= self._every or (complete and last != COMPLETE):
            self._said[view.name] = COMPLETE if complete else now
            self.say(f"{view.name}: {view.numbers()}")

    def tick(self, views: Sequence[TaskView]) -> None:
        """Workers that do not come are worth a line, and that they came after all as well."""
        for view in views:
            late = view.late(time.time())
            said = self._late.get(view.name)
            if late and said is None:
                self.say(f"{view.name}: {', '.join(view.rank_texts(time.time()))}")
                self._late[view.name] = late
            elif said is not None and not late:
                del self._late[view.name]
                if view.ranks:
                    self.say(f"{view.name}: ranks {len(view.ranks)}/{view.world_size}")


class JsonFace(Face):
    """One JSON object per line on stdout, nothing else."""

    def _put(self, **fields: Any) -> None:
        self.stream.line(json.dumps(fields, default=str))

    def say(self, line: str) -> None:
        """Texts are fields here."""
        self._put(t=round(time.time(), 3), kind="text", text=line)

    def started(self, view: TaskView, reasons: Sequence[str]) -> None:
        """A task starts."""
        self._put(t=view.started, kind="task", task=view.name, status="started", reasons=reasons)

    def event(self, view: TaskView, event: Event) -> None:
        """Passed on with the task's name."""
        self._put(**{**event, "task": view.name})

    def ended(self, view: TaskView, failure: str | None, output: str, now: float) -> None:
        """A task ended."""
        status = "succeeded" if failure is None else "failed"
        more = {} if failure is None else {"error": failure, "output": output}
        self._put(t=round(now, 3), kind="task", task=view.name, status=status, **more)

    def cut_off(self, view: TaskView, now: float) -> None:
        """doit ends before the task could."""
        self._put(t=round(now, 3), kind="task", task=view.name, status="interrupted")

    def skipped(self, name: str, why: str) -> None:
        """Nothing to do."""
        self._put(t=round(time.time(), 3), kind="task", task=name, status=why.replace(" ", "_"))

    def done(self, *, failed: bool) -> None:
        """The last line."""
        self._put(t=round(time.time(), 3), kind="done", failed=failed)
