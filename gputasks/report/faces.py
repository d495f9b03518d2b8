"""Three ways to show the same: a live block, plain lines, JSON lines."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

from gputasks.report import text

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

    def say(self, line: str) -> None:
        """One permanent line."""
        self.stream.line(line)

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
            self.say(output.rstrip("\n"))
        if failure is not None:
            self.say(failure)

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

    def say(self, line: str) -> None:
        """A line with the time before it; further lines of an error stand alone."""
        if line.startswith(("-- ", "error: ")):
            self.stream.line(line)
        else:
            self.stream.line(f"{text.stamp(time.time())} {line}")

    def event(self, view: TaskView, event: Event) -> None:
        """Progress is a line at most every 30 s, and one when it is complete."""
        super().event(view, event)
        if event["kind"] == "phase" and event.get("text"):
            self.say(f"{view.name}: {text.one_line(str(event['text']))}")
        if event["kind"] != "progress" or view.phase == "build":
            return  # steps of a build are told one by one
        now, complete = time.monotonic(), view.fraction() == 1.0
        last = self._said.setdefault(view.name, now)
        if now - last >= self._every or (complete and last != COMPLETE):
            self._said[view.name] = COMPLETE if complete else now
            where = view.title(time.time()).removeprefix(f"{view.name}  ")
            self.say(f"{view.name}: {where}  {view.numbers()}".rstrip())


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

    def skipped(self, name: str, why: str) -> None:
        """Nothing to do."""
        self._put(t=round(time.time(), 3), kind="task", task=name, status=why.replace(" ", "_"))

    def done(self, *, failed: bool) -> None:
        """The last line."""
        self._put(t=round(time.time(), 3), kind="done", failed=failed)


class LiveFace(Face):
    """A small block that moves, replaced by one permanent line per task.

    rich is imported at the first task that runs: a no-op does without, and a display that lives
    before doit forks deadlocks in rich's lock.  It refreshes itself only from the reporter's tick.
    """

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self._live: Any = None

    def say(self, line: str) -> None:
        """Above the block."""
        if self._live is None:
            self.stream.line(line)
            return
        from rich.text import Text

        self._live.console.print(Text(line), soft_wrap=True, highlight=False)

    def tick(self, views: Sequence[TaskView]) -> None:
        """Draw the block anew."""
        if self._live is None:
            if not views:
                return
            from rich.console import Console
            from rich.live import Live

            self._live = Live(
                console=Console(stderr=True),
                auto_refresh=False,
                transient=True,
                redirect_stdout=True,
            )
            self._live.start()
        self._live.update(self._block(views), refresh=True)

    def _block(self, views: Sequence[TaskView]) -> Any:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        rows: list[Any] = []
        now = time.time()
        for view in views[:6]:
            rows.append(Text(view.title(now), style="bold", no_wrap=True, overflow="ellipsis"))
            fraction, numbers = view.fraction(), view.numbers()
            if view.waiting:
                rows.append(Text(f"  {view.waiting}", no_wrap=True, overflow="ellipsis"))
            elif fraction is not None:
                line = Table.grid(padding=(0, 1))
                line.add_column(width=20)
                line.add_column(no_wrap=True, overflow="ellipsis")
                line.add_row(ProgressBar(total=1.0, completed=fraction, width=20), Text(numbers))
                rows.append(line)
            elif numbers:
                rows.append(Text(f"  {numbers}", no_wrap=True, overflow="ellipsis"))
        if len(views) > 6:
            rows.append(Text(f"and {len(views) - 6} more"))
        return Group(*rows)

    def without_block(self) -> Face:
        """Permanent lines only."""
        return Face(self.stream)

    def close(self) -> None:
        """Take the block away, show the cursor."""
        if self._live is not None:
            live, self._live = self._live, None
            live.stop()
