"""One writer per task: the lock that a run holds from its first change to its receipt."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from typing import TYPE_CHECKING

from gputasks.errors import MachineError
from gputasks.leases.flock import (
    Owner,
    clear_owner,
    describe,
    open_lock,
    read_owner,
    try_lock,
    write_owner,
)

if TYPE_CHECKING:
    from collections.abc import Callable

POLL_S = 0.2
HEARTBEAT_S = 20.0
FOREIGN_S = 120.0
"""A note of another machine, younger than this, counts as held although the lock was free: some
network file systems do not carry locks from one machine to another."""


class TaskLock:
    """The lock of a task, held.

    Attributes:
        waited: somebody else held it first, so the world may have changed.
        previous: the note of an owner that did not end well, empty otherwise.

    """

    def __init__(self, fd: int, *, waited: bool, previous: Owner) -> None:
        self.fd = fd
        self.waited = waited
        self.previous = previous
        self._beat = time.monotonic()

    def heartbeat(self) -> None:
        """Show other machines that the owner lives: the file's mtime is the sign."""
        if time.monotonic() - self._beat >= HEARTBEAT_S:
            self._beat = time.monotonic()
            with contextlib.suppress(OSError):
                os.utime(self.fd)

    def release(self) -> None:
        """Let go, and say that the owner ended well."""
        if self.fd >= 0:
            clear_owner(self.fd)
            os.close(self.fd)
            self.fd = -1


def lock_task(
    path: str,
    *,
    task: str,
    run: str,
    waiting: Callable[[str], None] = lambda _text: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> TaskLock | None:
    """Take the lock, waiting for whoever holds it; None when cancelled.

    Raises:
        MachineError: the lock file cannot be made, or another machine holds the task.

    """
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        fd = open_lock(path)
    except OSError as error:
        raise MachineError(f"cannot lock task `{task}`: {error.strerror}: `{path}`") from error
    waited = False
    while not _try(fd, path):
        if not waited:
            waited = True
            waiting(f"another run holds this task: {describe(read_owner(fd))}; waiting for it")
        if cancelled():
            os.close(fd)
            return None
        time.sleep(POLL_S)
    previous = read_owner(fd)
    if previous and previous.get("host") != os.uname().nodename:
        age = time.time() - os.fstat(fd).st_mtime
        if age < FOREIGN_S:
            os.close(fd)
            raise MachineError(
                f"task `{task}` is held by another machine: {describe(previous)}",
                facts=[f"its last sign of life is {age:.0f} s old", f"lock: {path}"],
                hint=f"if that run is dead: `gputasks unlock {task}`",
            )
    write_owner(fd, task=task, run=run)
    return TaskLock(fd, waited=waited, previous=previous)


def _try(fd: int, path: str) -> bool:
    try:
        return try_lock(fd)
    except OSError as error:
        if error.errno in (errno.ENOLCK, errno.EOPNOTSUPP):
            raise MachineError(
                f"the file system of `{path}` has no locks",
                hint="keep the project on a local disk, or mount NFS with locking",
            ) from error
        raise
