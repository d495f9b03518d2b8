"""The state of one running task, as its events tell it.  Pure."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from gputasks.report import text
from gputasks.report.trend import Trend
from gputasks.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gputasks.events import Event

SILENT_S = 5.0
"""Ranks start together: one that is so much later than the last is told by its number."""
FIRST_S = 20.0
"""Until the first one comes, torch is imported, which takes long on a cold disk."""
NAMED = 6
MOST = 1e100

PHASES = {
    "lease": "leases GPUs",
    "environment": "installs",
    "launch": "is launched",
    "restore": "is restored",
    "train": "trains",
    "run": "runs",
    "verify": "is verified",
    "publish": "is published",
    "pull": "pulls",
    "build": "builds",
    "push": "pushes",
}


class TaskView:
    """Takes events, gives texts."""

    def __init__(self, name: str, started: float | None = None) -> None:
        self.name = name
        self.started = time.time() if started is None else started
        self.owns_terminal = False
        self.may_print = False
        self.phase = ""
        self.doing = ""
        self.waiting = ""
        self.waited = False
        self.world_size = 0
        self.ranks: set[int] = set()
        self.progress: Event = {}
        self.metrics: dict[str, Any] = {}
        self.loss_name = ""
        self.trend = Trend()
        self.gpus: Sequence[dict[str, Any]] = ()
        self.log = ""
        self.finished: Event | None = None
        self._heard = self.started

    def apply(self, event: Event) -> None:
        """Take one event."""
        kind = event["kind"]
        moment = float(event.get("t") or self.started)
        if kind == "started":
            self.waited, self.waiting = bool(self.waiting), ""
            self.log = str(event.get("log") or "")
        elif kind == "phase":
            self.phase, self.waiting = str(event.get("phase", "")), ""
            self._heard = moment
            self.doing = text.one_line(str(event.get("text", "")))
        elif kind == "waiting":
            self.waiting = text.one_line(str(event.get("text", "")))
        elif kind == "placed":
            self.world_size, self.waiting = int(event.get("world_size") or 0), ""
        elif kind == "rank":
            self.ranks.add(int(event.get("rank", 0)))
            self._heard = moment
        elif kind == "progress":
            self.progress = {k: v for k, v in event.items() if _is_number(v)}
            metrics = event.get("metrics")
            self._measure(metrics if isinstance(metrics, dict) else {})
        elif kind == "gpu":
            self.gpus = event.get("gpus") or []
        elif kind == "attempt":
            self.ranks.clear()
            self.progress, self.gpus, self.trend = {}, (), Trend()
            self._heard = moment
        elif kind == "finished":
            self.finished = event

    def _measure(self, metrics: dict[str, Any]) -> None:
        self.metrics.update(metrics)
        name = loss_name(self.metrics)
        if name != self.loss_name:
            self.loss_name, self.trend = name, Trend()
        value = metrics.get(self.loss_name)
        if value is not None and _is_number(value):
            self.trend.add(float(value))

    # -- texts ---------------------------------------------------------------------------------

    def elapsed(self, now: float) -> str:
        """`1m04s`."""
        return format_duration(now - self.started)

    def phase_text(self) -> str:
        """What it does at the moment."""
        return "waits" if self.waiting else PHASES.get(self.phase, "starts")

    def late(self, now: float) -> list[int]:
        """Ranks that have not come although they should have."""
        if self.world_size < 2 or self.phase != "train" or len(self.ranks) >= self.world_size:
            return []
        if now - self._heard < (SILENT_S if self.ranks else FIRST_S):
            return []
        return [rank for rank in range(self.world_size) if rank not in self.ranks]

    def rank_texts(self, now: float) -> list[str]:
        """`ranks 3/4`, `silent: 2`, until all are there."""
        if self.world_size < 2 or self.phase != "train" or len(self.ranks) >= self.world_size:
            return []
        late = self.late(now)
        names = ", ".join(map(str, late[:NAMED])) + (", ..." if len(late) > NAMED else "")
        return [
            f"ranks {len(self.ranks)}/{self.world_size}",
            *([f"silent: {names}"] if late else []),
        ]

    def fraction(self) -> float | None:
        """How much is done, 0 to 1, None when nobody knows."""
        step, total = self.progress.get("step"), self.progress.get("total")
        if step is None or total is None or total <= 0:
            return None
        return float(min(1.0, max(0.0, step / total)))

    def step_texts(self) -> list[str]:
        """`step 40/120`, `epoch 2/3`, `eta 42s`, `12.3 it/s`: what matters most comes first.

        While an image is built, what is being done.
        """
        if self.doing:
            return [self.doing]
        step, total = self.progress.get("step"), self.progress.get("total")
        epoch, epochs = self.progress.get("epoch"), self.progress.get("max_epochs")
        rate, eta = self.progress.get("rate"), self.progress.get("eta_s")
        parts = []
        if step is not None:
            parts.append(f"step {step}/{total}" if total else f"step {step}")
        if epoch is not None:
            # Counted from 0; after the last one Lightning has counted on.
            shown = f"{min(epoch + 1, epochs)}/{epochs}" if epochs else f"{epoch + 1}"
            parts.append(f"epoch {shown}")
        if eta is not None and eta > 0:
            parts.append(f"eta {format_duration(eta)}")
        if rate is not None and rate > 0:
            parts.append(f"{rate:.3g} it/s")
        return parts

    def metric_texts(self) -> list[str]:
        """`loss 0.3123`, then the others by how much they tell."""
        return text.metric_texts(self.metrics, first=self.loss_name)

    def gpu_texts(self) -> list[str]:
        """What its GPUs do, as far as it is known."""
        return text.gpu_texts(self.gpus)

    def numbers(self) -> str:
        """All of it in one line, or what is being done."""
        if self.doing:
            return text.one_line(self.doing)
        return "  ".join([*self.step_texts(), *self.metric_texts(), *self.gpu_texts()])


def _is_number(value: Any) -> bool:
    """A worker's file may hold anything; NaN comes as a string, and an int may be too large."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < MOST


def loss_name(metrics: dict[str, Any]) -> str:
    """The metric whose course is shown: the loss of the training, else any loss."""

    def weight(name: str) -> int:
        lowered = name.lower()
        return 0 if lowered == "loss" else 1 if "train" in lowered else 3 if "val" in lowered else 2

    losses = [name for name in metrics if "loss" in name.lower()]
    return min(losses, key=weight, default="")
