"""This machine as a `Node`, looked at anew for each run."""

from __future__ import annotations

import os

from gputasks.nodes.nvidia import list_gpus
from gputasks.nodes.visible import visible_gpus
from gputasks.specs import Node


def local_node(*, gpus: bool = True) -> Node:
    """This machine: the CPUs this process may use, its memory, and the GPUs the caller may see.

    Args:
        gpus: look for GPUs; a task that wants none need not pay for asking the driver.

    """
    found, source = list_gpus() if gpus else ((), "")
    return Node(
        name=os.uname().nodename,
        cpu_count=float(len(os.sched_getaffinity(0))),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        shm_bytes=_shm_bytes(),
        gpus=visible_gpus(found, os.environ.get("CUDA_VISIBLE_DEVICES")),
        gpu_source=source,
    )


def _shm_bytes() -> int:
    try:
        shm = os.statvfs("/dev/shm")  # noqa: S108  the kernel's name for shared memory
    except OSError:
        return 0
    return shm.f_frsize * shm.f_blocks
