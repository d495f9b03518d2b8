"""Claims that die with their owner: one file lock per GPU and per task.

A lock of the kernel (flock) needs no clean-up: it ends with the last process that holds the open
file, whatever way that process ends, and the guard holds it until its sweep is over.
"""

from gputasks.leases.gpus import GpuLease, lease_gpus
from gputasks.leases.tasks import TaskLock, lock_task

__all__ = ["GpuLease", "TaskLock", "lease_gpus", "lock_task"]
