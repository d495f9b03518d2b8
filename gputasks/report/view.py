"""The state of one running task, as its events tell it.  Pure."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from gputasks.report.text import metric_texts, one_line
from gputasks.units import format_duration

if TYPE_CHECKING:
    from gputasks.events import Event


_PHASES = {
    "train": "trains",
    "run": "runs",
    "verify": "is verified",
    "pull": "pulls",
    "build": "builds",
    "push": "pushes",
}


class TaskView:
    """Takes events, gives lines."""

    def __init__(self, name: str, started: float | None = None) -> None:
        self.name = name
        self.started = time.time() if started is None else started
        self.phase = ""
        self.doing = ""
        self.waiting = ""
        self.waited = False
        self.world_size = 0
        self.ranks: set[int] = set()
        self.progress: Event = {}
        self.metrics: dict[str, Any] = {}
        self.facts: Event = {}
        self.finished: Event | None = None

    def apply(self, event: Event) -> None:
        """Take one event."""
        kind = event["kind"]
        if kind == "started":
            self.waited, self.waiting = bool(self.waiting), ""
        elif kind == "phase":
            self.phase, self.waiting = str(event.get("phase", "")), ""
            self.doing = str(event.get("text", ""))
        elif kind == "waiting":
            self.waiting = str(event.get("text", ""))
        elif kind == "placed":
            self.world_size, self.waiting = int(event.get("world_size") or 0), ""
        elif kind == "rank":
            self.ranks.add(int(event.get("rank", 0)))
        elif kind == "progress":
            self.progress = event
            self.metrics.update(event.get("metrics") or {})
        elif kind == "facts":
            self.facts = event
        elif kind == "attempt":
            self.ranks.clear()
            self.progress = {}
        elif kind == "finished":
            self.finished = event

    def title(self, now: float) -> str:
        """`train  epoch 2/5  1m04s`, or what it waits for."""
        took = format_duration(now - self.started)
        return "  ".join(p for p in (self.name, self._where(), took) if p)

    def _where(self) -> str:
        if self.waiting:
            return "waits"
        epoch, epochs = self.progress.get("epoch"), self.progress.get("max_epochs")
        if epoch is not None:
            # Counted from 0; after the last one Lightning has counted on.
            return f"epoch {min(epoch + 1, epochs)}/{epochs}" if epochs else f"epoch {epoch + 1}"
        if self.world_size > 1 and len(self.ranks) < self.world_size and self.phase == "train":
            return f"{len(self.ranks)}/{self.world_size} workers ready"
        return _PHASES.get(self.phase, "starts")

    def fraction(self) -> float | None:
        """How much is done, 0 to 1, None when nobody knows."""
        step, total = self.progress.get("step"), self.progress.get("total")
        if not isinstance(step, (int, float)) or not isinstance(total, (int, float)) or total <= 0:
            return None
        return min(1.0, max(0.0, step / total))

    def numbers(self) -> str:
        """`step 40/120  12.3 it/s  eta 42s  loss 0.31`, or what is being done."""
        if self.doing:
            return one_line(self.doing)
        parts = []
        step, total = self.progress.get("step"), self.progress.get("total")
        if step is not None:
            parts.append(f"step {step}/{total}" if total else f"step {step}")
        rate, eta = self.progress.get("rate"), self.progress.get("eta_s")
        if isinstance(rate, (int, float)) and rate > 0:
            parts.append(f"{rate:.3g} it/s")
        if isinstance(eta, (int, float)) and eta > 0:
            parts.append(f"eta {format_duration(eta)}")
        parts += metric_texts(self.metrics)
        return "  ".join(parts)
