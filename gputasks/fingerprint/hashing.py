"""Digests of single files, and when a digest may be trusted again without reading the file.

**Speed.**  One thread and reads of 1 MiB: BLAKE3 then takes several GB/s from the page cache, more
than disks deliver.  More threads gain next to nothing there, and the library's own thread pool
hangs for ever in a forked child, which `doit -n` makes.  `mmap` is not used either: a file that
shrinks under it kills the process with SIGBUS.

**Trust** (the rule of racy git: https://git-scm.com/docs/racy-git).  A digest belongs to a *state*:
size, mtime, ctime, inode, device.  Every write gives a file a new ctime, and no program can set
one, so only ctime decides: an mtime in the future or the past means nothing.  But the clock of a
file system ticks: a write right after the hashing may get the very ctime that was seen.  So a
state is *settled*, and its digest trusted, only when the hashing began more than one tick after
the ctime.

A ctime in the future (the clock was set back; a file server is ahead) would never settle by that
rule.  So the time at which this very state was *first seen* also counts: what had this ctime a tick
ago gets another one when it is written now, whatever its clock.  At most one more hashing follows.

What remains: a file written through a shared memory map keeps its ctime until the kernel writes
the page back, and a network file system may show another machine's write some seconds late.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from typing import TYPE_CHECKING

from gputasks.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    Tick = Callable[[int], None]

PIECE = 1 << 20
"""Bytes between two chances for Ctrl-C, and between two ticks of a progress display."""

GRAIN_NS = 20_000_000
"""Two ticks of the slowest kernel clock (100 Hz), which dates files on Linux before 6.13."""

COARSE_NS = 2_000_000_000
"""The grain where ctime has whole seconds only, as on FAT and old NFS servers."""

_TRIES = 3


def file_digest(path: str, tick: Tick | None = None) -> str:
    """`blake3:<64 hex digits>` of a file's content.

    Args:
        path: a regular file, or a link to one.
        tick: called with the number of bytes read since the last call.

    Raises:
        OSError: missing, unreadable, a folder.
        ConfigError: neither file nor folder.
    """
    return _read(path, tick)[0]


def state_of(info: os.stat_result) -> str:
    """What must all be equal for a file to count as untouched, as text without NUL."""
    # Network, overlay and memory file systems get a new device number at each mount (major 0):
    # counting it would hash everything again after a reboot.
    device = info.st_dev if info.st_dev > 0xFF and os.major(info.st_dev) else 0
    return f"{info.st_size} {info.st_mtime_ns} {info.st_ctime_ns} {info.st_ino} {device}"


def settled(ctime_ns: int, seen_ns: int, hashed_ns: int) -> bool:
    """True when a later write must show in ctime.

    Args:
        ctime_ns: of the file.
        seen_ns: when a file with this very state was seen first, by this machine's clock.
        hashed_ns: when the hashing began.
    """
    grain = GRAIN_NS if ctime_ns % 1_000_000_000 else COARSE_NS
    return hashed_ns - min(ctime_ns, seen_ns) > grain


def hash_state(
    path: str, state: str, seen_ns: int, tick: Tick | None = None
) -> tuple[str, str, int]:
    """Digest a file together with the state that the digest belongs to.

    Args:
        path: the file.
        state: as it was just seen.
        seen_ns: when that state was seen first, 0 when only now.
        tick: see `file_digest`.

    Returns:
        digest, state, and 0 when settled, else when the state was seen first.  The state is empty,
        and equal to none, when the file kept changing while it was read.

    Raises:
        OSError: missing, unreadable.
        ConfigError: neither file nor folder.
    """
    digest = ""
    for _ in range(_TRIES):
        began = time.time_ns()
        digest, before, after = _read(path, tick)
        found = state_of(before)
        if found != state_of(after):
            continue
        # A first sight later than now comes from a clock that was set back since.
        seen = min(seen_ns, began) if seen_ns and found == state else began
        return digest, found, 0 if settled(before.st_ctime_ns, seen, began) else seen
    return digest, "", 0


def _read(path: str, tick: Tick | None) -> tuple[str, os.stat_result, os.stat_result]:
    from blake3 import blake3

    # O_NONBLOCK: opening a fifo must not wait for its writer.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        before = os.fstat(fd)
        if not stat.S_ISREG(before.st_mode):
            _refuse(path, before.st_mode)
        # A file of known size comes whole in one read; /proc has files of size 0 that hold more.
        data = os.read(fd, min(before.st_size + 1, PIECE))
        hasher = blake3(data)
        if tick is not None:
            tick(len(data))
        if len(data) != before.st_size:
            buffer = memoryview(bytearray(PIECE))
            while count := os.readv(fd, [buffer]):
                hasher.update(buffer[:count])
                if tick is not None:
                    tick(count)
        return f"blake3:{hasher.hexdigest()}", before, os.fstat(fd)
    finally:
        os.close(fd)


def _refuse(path: str, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    raise special_file(path, mode)


def special_file(path: str, mode: int) -> ConfigError:
    """The error for what has no content to compare."""
    kinds = {stat.S_IFIFO: "fifo", stat.S_IFSOCK: "socket", stat.S_IFCHR: "device"}
    kind = kinds.get(stat.S_IFMT(mode), "device")
    return ConfigError(f"`{path}` is a {kind}: only files, folders and links can be inputs")
