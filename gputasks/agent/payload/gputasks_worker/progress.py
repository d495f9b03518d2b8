"""What native scripts call: `gputasks.progress(step=10, total=100, loss=loss)`."""

from __future__ import annotations

import atexit
import os
import time

from .events import VARIABLE, append, number
from .pace import Pace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

INTERVAL_S = 0.2


class _Progress:
    """The first call is written, then one per interval, and the last one at the end."""

    def __init__(self) -> None:
        self._due = 0.0
        self._path = ""
        self._latest: dict[str, Any] | None = None
        self._pace = Pace()

    def report(self, path: str, fields: dict[str, Any]) -> None:
        if not self._path:
            atexit.register(self.flush)
        # Only the number is wanted: a kept loss would keep its whole graph in memory.
        metrics = {name: _detached(value) for name, value in fields["metrics"].items()}
        self._path, self._latest = path, {**fields, "metrics": metrics}
        if time.monotonic() >= self._due:
            self.flush()

    def flush(self) -> None:
        """Write what was reported last, if it was not written yet."""
        if self._latest is None:
            return
        fields, self._latest = self._latest, None
        self._due = time.monotonic() + INTERVAL_S
        values = {name: number(value) for name, value in fields.pop("metrics").items()}
        counts = {name: _count(value) for name, value in fields.items()}
        step = counts["step"]
        if step is not None:
            self._pace.done(step)
        append(
            self._path,
            "progress",
            rank=_count(os.environ.get("RANK", "0")),
            **counts,
            rate=self._pace.rate,
            eta_s=self._pace.eta_s(counts["total"]),
            metrics={name: value for name, value in values.items() if value is not None} or None,
        )


_progress = _Progress()


def _detached(value: Any) -> Any:
    detach = getattr(value, "detach", None)
    return value if detach is None else detach()


def _count(value: Any) -> int | float | None:
    """A whole number where it is one."""
    if value is None:
        return None
    found = number(int(value) if isinstance(value, str) else value)
    return int(found) if found is not None and found == found // 1 else found


def progress(
    *,
    step: Any = None,
    total: Any = None,
    epoch: Any = None,
    max_epochs: Any = None,
    **metrics: Any,
) -> None:
    """Tell how far the training is; does nothing outside of a run of gputasks.

    Cheap enough for every step: at most five lines a second are written, and the last one always.

    Args:
        step: steps done so far, over all epochs.
        total: steps of the whole training.
        epoch: the epoch in progress, counted from 0 as by `range`.
        max_epochs: epochs of the whole training.
        metrics: numbers, or tensors of one element, by name.

    """
    path = os.environ.get(VARIABLE)
    if path:
        fields = {"step": step, "total": total, "epoch": epoch, "max_epochs": max_epochs}
        _progress.report(path, {**fields, "metrics": metrics})
