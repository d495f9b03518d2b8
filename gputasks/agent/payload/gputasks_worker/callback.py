"""The watch as a Lightning callback, and the factories that Lightning calls for it.

The entry points are in `gputasks_worker-1.dist-info`.  Lightning is imported only in here.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
import time

from .events import VARIABLE
from .watch import SHOWN_S, Watch
from .world import TrainedAloneError, checked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SLACK_S = 0.8 * SHOWN_S


def pytorch_lightning_callbacks() -> list[Any]:
    """For the entry point group `pytorch_lightning.callbacks_factory`."""
    return _callbacks("pytorch_lightning")


def lightning_callbacks() -> list[Any]:
    """For the entry point group `lightning.pytorch.callbacks_factory`."""
    return _callbacks("lightning.pytorch")


def _callbacks(package: str) -> list[Any]:
    return [callback_class(package)()] if os.environ.get(VARIABLE) else []


@functools.lru_cache(maxsize=None)
def callback_class(package: str) -> Any:
    """The callback's class for one of Lightning's two names; their `Callback`s are not related."""
    base: Any = importlib.import_module(package).Callback

    class GputasksProgress(base):  # type: ignore[misc]  # the base is known when it runs
        """Tells gputasks what the trainer is doing.  It never fails the training: one complaint."""

        gputasks = True

        def __init__(self) -> None:
            super().__init__()
            self._watch = Watch()
            # The only thing read at every batch: a training that nobody watches costs nothing.
            self._due = 0.0 if self._watch.path else float("inf")

        def _safely(self, act: Any, *args: Any) -> None:
            if self._due == float("inf"):
                return
            try:
                act(*args)
                self._due = self._watch.due
            except Exception as error:  # noqa: BLE001  whatever it is, the training goes on
                self._due = float("inf")
                print(f"gputasks: no more progress: {error!r}", file=sys.stderr)

        def _if_due(self, trainer: Any, *_: Any) -> None:
            if time.monotonic() >= self._due:
                self._safely(self._watch.progress, trainer)

        def _soon(self, trainer: Any, *_: Any) -> None:
            # An epoch's end is told at once; thousands of tiny epochs are not told one by one.
            if time.monotonic() >= self._due - SLACK_S:
                self._safely(self._watch.progress, trainer)

        def _now(self, trainer: Any, *_: Any) -> None:
            self._safely(self._watch.progress, trainer)

        def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ARG002  the hook's form
            first = next(c for c in trainer.callbacks if getattr(c, "gputasks", False))
            if first is not self:  # added by hand as well
                self._due = float("inf")
            if stage == "fit":
                _refuse_alone(trainer)

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            self._safely(self._watch.begin, trainer, pl_module)

        on_train_batch_end = on_validation_batch_end = _if_due
        on_test_batch_end = on_predict_batch_end = _if_due

        # Metrics of an epoch are reduced after its end: they are told when the next one starts.
        on_train_epoch_start = _soon
        on_train_end = on_test_end = _now

        def on_validation_end(self, trainer: Any, *_: Any) -> None:
            if not trainer.sanity_checking:
                self._soon(trainer)

        def on_fit_end(self, trainer: Any, *_: Any) -> None:
            self._safely(self._watch.end, trainer)

    return GputasksProgress


def _refuse_alone(trainer: Any) -> None:
    """Say before the first epoch what `WorldCheck` would say after the last.

    Raises:
        TrainedAloneError: the trainer does not work with all the ranks that were started.

    """
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    if checked(world_size) and trainer.world_size != world_size:
        raise TrainedAloneError(
            f"{world_size} ranks were started but this Trainer has world size {trainer.world_size}"
        )
