"""The context as a stream: GNU tar, sorted, no owners, no times, never as a whole in memory.

docker-py's own tar carries float times in PAX headers, which BuildKit takes for a Dockerfile, and
owners, which cost the cache.  It also writes the whole of it into a temporary file first.
"""

from __future__ import annotations

import os
import tarfile
from typing import TYPE_CHECKING

from gputasks.errors import MachineError
from gputasks.images.context import FOLDER, LINK, PROGRAM

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gputasks.images.context import Context, Entry

PIECE = 1 << 20


def tar_stream(
    context: Context | None, extra: Mapping[str, bytes], prefix: str = ""
) -> Iterator[bytes]:
    """Pieces of a tar of at most about 1 MiB each.

    Args:
        context: the files of the user's; None for none.
        extra: files of ours by path, first in the tar.
        prefix: folder in the tar that the user's files lie in.

    Raises:
        MachineError: a file cannot be read.

    """
    buffer = bytearray()
    for path in sorted(extra):
        buffer += _header(path, tarfile.REGTYPE, len(extra[path])) + extra[path]
        buffer += _padding(len(extra[path]))
    for entry in context.entries() if context is not None else ():
        if len(buffer) >= PIECE:
            yield bytes(buffer)
            buffer.clear()
        name = prefix + entry.path
        if entry.kind == FOLDER:
            buffer += _header(name + "/", tarfile.DIRTYPE, 0, mode=0o755)
        elif entry.kind == LINK:
            buffer += _header(name, tarfile.SYMTYPE, 0, mode=0o777, link=entry.state)
        else:
            mode = 0o755 if entry.kind == PROGRAM else 0o644
            buffer += _header(name, tarfile.REGTYPE, entry.size, mode=mode)
            assert context is not None  # noqa: S101  it has given this entry
            for piece in _content(context.root, entry):
                buffer += piece
                if len(buffer) >= PIECE:
                    yield bytes(buffer)
                    buffer.clear()
            buffer += _padding(entry.size)
    yield bytes(buffer + bytes(2 * tarfile.BLOCKSIZE))


def _header(name: str, kind: bytes, size: int, *, mode: int = 0o644, link: str = "") -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.mode, info.linkname = kind, size, mode, link
    info.mtime = info.uid = info.gid = 0
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def _padding(size: int) -> bytes:
    return bytes(-size % tarfile.BLOCKSIZE)


def _content(root: str, entry: Entry) -> Iterator[bytes]:
    """Exactly as many bytes as the header says: a file that changes now is noticed afterwards."""
    path, left = os.path.join(root, entry.path), entry.size
    try:
        with open(path, "rb", buffering=0) as file:
            while left and (piece := file.read(min(PIECE, left))):
                left -= len(piece)
                yield piece
    except FileNotFoundError:
        pass
    except OSError as error:
        raise MachineError(f"`{path}` cannot be read: {error.strerror}") from error
    while left:
        yield bytes(min(PIECE, left))
        left -= min(PIECE, left)
