"""One file lock with a note of who holds it."""

from __future__ import annotations

import fcntl
import json
import os
import time
from typing import Any

Owner = dict[str, Any]


def boot_id() -> str:
    """Names this boot of this machine: a pid means nothing without it."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def open_lock(path: str) -> int:
    """Open a lock file, making it when it is not there.

    Raises:
        OSError: no permission, read-only file system, no space.

    """
    flags = os.O_RDWR | os.O_CLOEXEC
    for _ in range(3):
        try:
            # Without O_CREAT first: fs.protected_regular refuses O_CREAT on a file of somebody
            # else's in a sticky folder, although it is ours to open.
            return os.open(path, flags)
        except FileNotFoundError:
            try:
                fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
            except FileExistsError:
                continue
            os.fchmod(fd, 0o666)
            return fd
    return os.open(path, flags)


def try_lock(fd: int) -> bool:
    """Take the lock if nobody has it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def write_owner(fd: int, **facts: Any) -> None:
    """Note down who holds the lock.  A full disk loses the note, never the lock."""
    owner: Owner = {
        "host": os.uname().nodename,
        "boot": boot_id(),
        "pid": os.getpid(),
        "uid": os.getuid(),
        "since": time.time(),
        **facts,
    }
    try:
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps(owner).encode(), 0)
    except OSError:
        return


def clear_owner(fd: int) -> None:
    """Note down that nobody holds the lock: its owner ended well."""
    try:
        os.ftruncate(fd, 0)
    except OSError:
        return


def read_owner(fd: int) -> Owner:
    """The note of the one who holds, or last held, the lock; empty when there is none."""
    try:
        owner = json.loads(os.pread(fd, 4096, 0) or b"{}")
    except (OSError, ValueError):
        return {}
    return owner if isinstance(owner, dict) else {}


def describe(owner: Owner) -> str:
    """`train run k4f2, pid 4242 on hal, since 14:02`."""
    if not owner:
        return "another process"
    what = " ".join(str(owner[k]) for k in ("task",) if owner.get(k))
    run = f" run {owner['run']}" if owner.get("run") else ""
    since = time.strftime("%H:%M:%S", time.localtime(float(owner.get("since", 0))))
    who = f"pid {owner.get('pid', '?')} on {owner.get('host', '?')}, since {since}"
    return f"{what}{run}, {who}".lstrip(", ")
