"""What a Lightning trainer is doing, as events: `progress` again and again, `facts` twice.

`facts` has, at the start, what decides about the result or its pace and is not in the params:
batch_size (per worker), global_batch_size, world_size, precision (the effective one: 16 on a CPU
becomes bf16-mixed), accumulate_grad_batches, of the loader that trains num_workers, pin_memory and
persistent_workers, device (`cpu`, `cuda`), max_epochs, strategy, seed, hparams; at the end the best
checkpoint: best_model_path, best_model_score.
"""

from __future__ import annotations

import os
import time

from .events import VARIABLE, append, number
from .pace import Pace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SHOWN_S = 0.5
"""Rank 0 is what people look at."""
ALIVE_S = 5.0
"""The other ranks only show that they live: a stall is seen by their silence."""
MAX_METRICS = 64


class Watch:
    """Reads one trainer.  Asks it nothing that could start a collective: see `_metrics`."""

    def __init__(self) -> None:
        self.path = os.environ.get(VARIABLE, "")
        self.due = 0.0
        self._pace = Pace()

    def progress(self, trainer: Any) -> None:
        """Append where the training stands."""
        first = trainer.global_rank == 0
        self.due = time.monotonic() + (SHOWN_S if first else ALIVE_S)
        step, total = int(trainer.global_step), _total(trainer)
        self._pace.done(step)
        epochs = _finite(trainer.max_epochs)
        # Counted from 0; when all is done Lightning has counted one too far.
        epoch = min(trainer.current_epoch, epochs - 1) if epochs else trainer.current_epoch
        fields: dict[str, Any] = {"step": step, "epoch": epoch}
        if first:
            fields.update(
                total=total if total is None or total >= step else None,
                max_epochs=epochs,
                rate=self._pace.rate,
                eta_s=self._pace.eta_s(total),
                metrics=_metrics(trainer) or None,
            )
        append(self.path, "progress", rank=trainer.global_rank, **fields)

    def begin(self, trainer: Any, module: Any) -> None:
        """Append the facts that are known when training begins; rank 0 tells them for all."""
        if trainer.global_rank != 0:
            return
        loader = _loader(trainer.train_dataloader)
        size = _batch_size(loader)
        accumulate = int(trainer.accumulate_grad_batches)
        append(
            self.path,
            "facts",
            batch_size=size,
            global_batch_size=None if size is None else size * trainer.world_size * accumulate,
            world_size=trainer.world_size,
            precision=str(trainer.precision),
            accumulate_grad_batches=accumulate,
            num_workers=getattr(loader, "num_workers", None),
            pin_memory=getattr(loader, "pin_memory", None),
            persistent_workers=getattr(loader, "persistent_workers", None),
            device=getattr(getattr(trainer.strategy, "root_device", None), "type", None),
            max_epochs=_finite(trainer.max_epochs),
            strategy=type(trainer.strategy).__name__,
            seed=os.environ.get("PL_GLOBAL_SEED"),
            hparams=_scalars(getattr(module, "hparams", None)) or None,
        )

    def end(self, trainer: Any) -> None:
        """Append which checkpoint is the best one, when the trainer keeps such a thing."""
        checkpoints = trainer.checkpoint_callback
        path = getattr(checkpoints, "best_model_path", "")
        if trainer.global_rank == 0 and path:
            score = number(getattr(checkpoints, "best_model_score", None))
            append(self.path, "facts", best_model_path=str(path), best_model_score=score)


def _metrics(trainer: Any) -> dict[str, float]:
    """The newest logged numbers, by the names under which the script logged them.

    From the dictionaries that Lightning keeps, not by `trainer.callback_metrics`, which reduces
    `sync_dist` metrics on demand: a collective that rank 0 begins alone would hang them all.
    """
    connector = trainer._logger_connector  # noqa: SLF001
    found: dict[str, float] = {}
    for kept in ("_progress_bar_metrics", "_callback_metrics"):
        for name, value in list(getattr(connector, kept, {}).items())[:MAX_METRICS]:
            one = number(value)
            if one is not None:
                found[str(name)] = one
    return found


def _total(trainer: Any) -> int | None:
    """Optimizer steps of the whole training, None when it has no end that can be known."""
    batches, epochs = _finite(trainer.num_training_batches), _finite(trainer.max_epochs)
    limit = _finite(trainer.max_steps)
    if batches is None or epochs is None:
        return limit
    steps = -(-batches // max(1, int(trainer.accumulate_grad_batches))) * epochs
    return steps if limit is None else min(steps, limit)


def _finite(count: Any) -> int | None:
    """A count; Lightning writes "no limit" as None, -1 or infinity."""
    return None if count is None or count < 0 or count == float("inf") else int(count)


def _loader(loaders: Any) -> Any:
    """The one DataLoader, or the first of several."""
    while isinstance(loaders, (dict, list, tuple)) and loaders:
        loaders = next(iter(loaders.values() if isinstance(loaders, dict) else loaders))
    return loaders


def _batch_size(loader: Any) -> int | None:
    size = getattr(loader, "batch_size", None)
    if size is None:
        size = getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    return size if isinstance(size, int) else None


def _scalars(hparams: Any) -> dict[str, Any]:
    """The hyperparameters that the module saved, as far as they are plain values."""
    items = dict(hparams).items() if hparams else ()
    plain = (bool, int, float, str, type(None))
    return {str(k): v for k, v in list(items)[:MAX_METRICS] if isinstance(v, plain)}
