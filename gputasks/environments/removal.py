"""Environments that nothing needs any more."""

from __future__ import annotations

import fcntl
import os
import shutil
from typing import TYPE_CHECKING

from gputasks.environments.environment import READY, USED
from gputasks.leases.flock import open_lock, try_lock

if TYPE_CHECKING:
    from collections.abc import Collection


def unused(folder: str, in_use: Collection[str]) -> list[tuple[str, int, float]]:
    """Environments that may be removed: path, bytes, Unix time of their last start.

    Args:
        folder: `home(layout)`.
        in_use: paths or names of those that a task would use; those in which something runs are
            left out anyway, and so are those that are being made.

    """
    kept = {os.path.basename(path.rstrip(os.sep)) for path in in_use}
    try:
        entries = sorted(os.scandir(folder), key=lambda e: e.name)
    except OSError:
        return []
    found = []
    for entry in entries:
        if entry.name in kept or not entry.is_dir(follow_symlinks=False) or _busy(entry.path):
            continue
        found.append((entry.path, _bytes(entry.path), _last_used(entry.path)))
    return found


def remove(path: str) -> bool:
    """Remove one, unless something runs in it or somebody makes it; True when it is gone.

    Raises:
        OSError: it cannot be locked.

    """
    fd = open_lock(f"{path}.lock")
    try:
        if not try_lock(fd) or _in_use(path):
            return False
        # First the mark: what is left of a removal that is cut short is no environment.
        for name in (READY, ""):
            full = os.path.join(path, name)
            if name and os.path.exists(full):
                os.unlink(full)
            elif not name:
                shutil.rmtree(path, ignore_errors=True)
        return not os.path.lexists(path)
    finally:
        os.close(fd)


def _busy(path: str) -> bool:
    try:
        fd = os.open(f"{path}.lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return _in_use(path)
    try:
        return not try_lock(fd) or _in_use(path)
    finally:
        os.close(fd)


def _in_use(path: str) -> bool:
    try:
        fd = os.open(os.path.join(path, USED), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _last_used(path: str) -> float:
    for name in (USED, READY, ""):
        try:
            return os.stat(os.path.join(path, name)).st_mtime
        except OSError:
            continue
    return 0.0


def _bytes(path: str) -> int:
    """What removing it frees: files that uv shares with its cache count for nothing."""
    total = 0
    for base, _, names in os.walk(path):
        for name in names:
            try:
                info = os.lstat(os.path.join(base, name))
            except OSError:
                continue
            total += info.st_size if info.st_nlink == 1 else 0
    return total
