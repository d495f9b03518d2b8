"""Copy a file and tell the digest of the copy, at the price of the copy alone.

Where the file system can, the copy shares its blocks with the original until one of them is written
(FICLONE: btrfs, XFS, bcachefs).  Elsewhere the kernel copies (copy_file_range, which also works on
the server of an NFS mount), while a second thread reads what has arrived and hashes it: the pages
are hot, and both calls give up Python's lock.  Never hard links: whoever writes into a restored
checkpoint would write into the cache.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

FICLONE = 0x40049409
"""linux/fs.h; an ioctl of the target that takes the source's descriptor."""

PIECE = 8 << 20
_SMALL = 1 << 20
_READ = 1 << 20
_NO_RANGE = (errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM, errno.EBADF)


class Cancelled(Exception):  # noqa: N818  no error: somebody wants it to end
    """Asked to stop half-way."""


def copy_file(
    source: str, target: str, mode: int, cancelled: Callable[[], bool] = lambda: False
) -> str:
    """Copy the content; the hex BLAKE3 of what is in the copy.

    Args:
        source: a file.
        target: must not be there; on failure nothing is left of it.
        mode: of the copy, whatever the umask.
        cancelled: asked now and then.

    Raises:
        OSError: unreadable source, no space.
        Cancelled: `cancelled` said so.

    """
    reader = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        writer = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            digest = _copy(reader, writer, cancelled)
            os.fchmod(writer, mode)
        except BaseException:
            os.unlink(target)
            raise
        finally:
            os.close(writer)
    finally:
        os.close(reader)
    return digest


def _copy(reader: int, writer: int, cancelled: Callable[[], bool]) -> str:
    from blake3 import blake3

    size = os.fstat(reader).st_size
    if size <= _SMALL:
        data = os.pread(reader, _SMALL + 1, 0)
        if len(data) <= _SMALL:
            _write_all(writer, data)
            return str(blake3(data).hexdigest())
    try:
        fcntl.ioctl(writer, FICLONE, reader)
    except OSError:
        return _copy_and_hash(reader, writer, cancelled)
    return _hash(writer, os.fstat(writer).st_size, cancelled)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _hash(fd: int, size: int, cancelled: Callable[[], bool]) -> str:
    arrived = _Arrived(fd)
    arrived.so_far, arrived.ended = size, True
    return arrived.hash(cancelled)


def _copy_and_hash(reader: int, writer: int, cancelled: Callable[[], bool]) -> str:
    arrived = _Arrived(writer)
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(arrived.hash(lambda: False)))
    thread.start()
    try:
        while count := _copy_piece(reader, writer):
            arrived.add(count)
            if cancelled():
                raise Cancelled
    except BaseException:
        arrived.failed = True
        raise
    finally:
        arrived.end()
        thread.join()
    if not found:
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    return found[0]


def _copy_piece(reader: int, writer: int) -> int:
    try:
        return os.copy_file_range(reader, writer, PIECE)
    except OSError as error:
        if error.errno not in _NO_RANGE:
            raise
    data = os.read(reader, PIECE)
    _write_all(writer, data)
    return len(data)


class _Arrived:
    """How far a copy has come, and the hasher that follows it."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.so_far = 0
        self.ended = False
        self.failed = False
        self._changed = threading.Condition()

    def add(self, count: int) -> None:
        with self._changed:
            self.so_far += count
            self._changed.notify()

    def end(self) -> None:
        with self._changed:
            self.ended = True
            self._changed.notify()

    def hash(self, cancelled: Callable[[], bool]) -> str:
        from blake3 import blake3

        hasher: Any = blake3()
        buffer = memoryview(bytearray(_READ))
        done = 0
        while not self.failed:
            with self._changed:
                while self.so_far == done and not self.ended:
                    self._changed.wait()
                until = self.so_far
            if until == done:
                return str(hasher.hexdigest())
            while done < until and not self.failed:
                if cancelled():
                    raise Cancelled
                count = os.preadv(self.fd, [buffer[: min(_READ, until - done)]], done)
                if not count:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                hasher.update(buffer[:count])
                done += count
        return ""
