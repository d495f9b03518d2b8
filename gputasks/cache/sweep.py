"""What may leave the cache: the least recently used runs over the cap, and what nobody names."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, NamedTuple

from gputasks.cache.entries import read_entry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gputasks.cache.cache import Cache
    from gputasks.cache.entries import Entry

YOUNG_S = 3600.0
"""A content without an entry may belong to a run that is just being stored."""


def entries(cache: Cache) -> list[tuple[float, str, Entry | None]]:
    """When each was used last, its path, and what it says; the oldest first."""
    found = []
    folder = os.path.join(cache.folder, "entries")
    for name in _names(folder):
        path = os.path.join(folder, name)
        with contextlib.suppress(OSError):
            found.append((os.stat(path).st_mtime, path, read_entry(path)))
    return sorted(found, key=lambda row: row[:2])


def objects(cache: Cache) -> dict[str, tuple[int, float]]:
    """Size and age in seconds of each content, by digest."""
    now = time.time()
    return {
        digest: (info.st_size, now - info.st_mtime)
        for digest, info in _stats(os.path.join(cache.folder, "objects"))
    }


def _stats(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    for prefix in _names(folder):
        with contextlib.suppress(OSError), os.scandir(os.path.join(folder, prefix)) as found:
            for entry in found:
                with contextlib.suppress(OSError):
                    yield prefix + entry.name, entry.stat(follow_symlinks=False)


def _names(folder: str) -> list[str]:
    try:
        return [n for n in os.listdir(folder) if not n.startswith(".tmp-")]
    except OSError:
        return []


class Surplus(NamedTuple):
    """What may go: entries, contents with their sizes."""

    entries: list[str]
    objects: dict[str, int]


def surplus(cache: Cache, cap: int, *, unused_since: float = 0.0) -> Surplus:
    """What nobody names, what was not used since then, and the least recently used over the cap.

    The contents of a run go with it, unless another run names them, or they are so young that a
    run may be about to.

    Args:
        cache: where to look.
        cap: bytes.
        unused_since: Unix time.

    """
    held = objects(cache)
    total = sum(size for size, _ in held.values())
    known = entries(cache)
    named: dict[str, int] = {}
    for _, _, entry in known:
        for digest in entry.objects if entry is not None else ():
            named[digest] = named.get(digest, 0) + 1
    going = {d: n for d, (n, age) in held.items() if d not in named and age > YOUNG_S}
    total -= sum(going.values())
    paths = []
    for used, path, entry in known:
        if total <= cap and used >= unused_since:
            break
        paths.append(path)
        for digest in entry.objects if entry is not None else ():
            named[digest] -= 1
            if not named[digest] and digest in held:
                going[digest] = held[digest][0]
                total -= held[digest][0]
    return Surplus(paths, going)


def evict(cache: Cache, cap: int) -> None:
    """Remove what is over the cap."""
    remove(cache, surplus(cache, cap))


def remove(cache: Cache, going: Surplus) -> None:
    """Remove entries, then their contents: a crash in between leaves nothing half."""
    for path in going.entries:
        with contextlib.suppress(OSError):
            os.unlink(path)
    for digest in going.objects:
        with contextlib.suppress(OSError):
            os.unlink(cache.object(digest))


def leftovers(cache: Cache) -> list[tuple[str, int]]:
    """Copies that broke off: path and size of what nobody has written to for an hour."""
    folder = os.path.join(cache.folder, "tmp")
    found = []
    for name in _names(folder):
        path = os.path.join(folder, name)
        with contextlib.suppress(OSError):
            info = os.stat(path)
            if time.time() - info.st_mtime > YOUNG_S:
                found.append((path, info.st_size))
    return found
