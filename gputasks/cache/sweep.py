"""What may leave the cache: the least recently used runs over the cap, and what nobody names."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

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


def evict(cache: Cache, cap: int) -> None:
    """Remove what was used least recently until the rest takes no more than `cap` bytes.

    The contents of a run go with it, unless another run names them, or they are so young that a
    run may be about to.
    """
    held = objects(cache)
    total = sum(size for size, _ in held.values())
    if total <= cap:
        return
    known = entries(cache)
    named: dict[str, int] = {}
    for _, _, entry in known:
        for digest in entry.objects if entry is not None else ():
            named[digest] = named.get(digest, 0) + 1
    loose = [d for d, (_, age) in held.items() if d not in named and age > YOUNG_S]
    total -= remove_objects(cache, loose, held)
    for _, path, entry in known:
        if total <= cap:
            return
        with contextlib.suppress(OSError):
            os.unlink(path)
        gone = []
        for digest in entry.objects if entry is not None else ():
            named[digest] -= 1
            if not named[digest] and digest in held:
                gone.append(digest)
        total -= remove_objects(cache, gone, held)


def remove_objects(cache: Cache, digests: list[str], held: dict[str, tuple[int, float]]) -> int:
    """Remove contents; how many bytes that gave back."""
    freed = 0
    for digest in digests:
        with contextlib.suppress(OSError):
            os.unlink(cache.object(digest))
            freed += held[digest][0]
    return freed


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
