"""What training scripts ask for again and again: how many loader workers, and memory given back.

Both work outside of a run of gputasks as well, and neither imports torch.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING

from gputasks.errors import ConfigError

if TYPE_CHECKING:
    from typing import Any

WORKERS_PER_GPU = 4
"""The upper end of the usual 2 to 4 loader workers for each GPU."""

MAX_ROUNDS = 10
"""Objects with finalizers may leave more behind; nothing useful takes so many rounds."""


def suggest_num_workers(gpus: int, cpus: int | None = None) -> int:
    """`num_workers` for the DataLoader of one process, when there is one process per GPU.

    The rule of thumb is 2 to 4 loader workers for each GPU (PyTorch's forum, "Guidelines for
    assigning num_workers to DataLoader", topic 813).  DataLoader counts per process, and torch
    compares each count with the cores as if no other process were there; but all processes of the
    machine share them.  So: 4, or cores // processes if that is less; and 0 on a single core, where
    a loader only takes turns with the training.

        loader = DataLoader(data, num_workers=gt.suggest_num_workers(gpus=8, cpus=16))  # 2

    Args:
        gpus: processes that train on this machine, one per GPU (LOCAL_WORLD_SIZE); 0 is one
            process without a GPU.
        cpus: cores that they share; by default those that this process may use (taskset, cpusets
            of containers and of Slurm; not quotas of time).

    Raises:
        ConfigError: a number that is no count.

    """
    processes = max(1, _count("gpus", gpus, least=0))
    cores = len(os.sched_getaffinity(0)) if cpus is None else _count("cpus", cpus, least=1)
    return 0 if cores == 1 else min(WORKERS_PER_GPU, cores // processes)


def _count(name: str, value: Any, *, least: int) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return value
    raise ConfigError(f"`{name}` must be a whole number from {least} on, not {value!r}")


def cleanup_memory() -> None:
    """Give the memory that torch caches on the GPU, and nobody uses, back to the driver.

    Collects garbage until none is left, since a tensor in a reference cycle keeps its memory, then
    empties the cache (as ZenML's `cleanup_memory` at the start of a step).  For a process that goes
    on after a training, and for what comes next on the same GPU; in the middle of a training it
    only costs time.

    Does nothing where torch is not imported or CUDA was not used: there is nothing to give back,
    and asking would make a CUDA context, which takes some hundred MB of the GPU.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return
    for _ in range(MAX_ROUNDS):
        if not gc.collect():
            break
    torch.cuda.empty_cache()
