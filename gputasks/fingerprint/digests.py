"""The one door to digests: any path, asked as often as one likes, looked at once."""

from __future__ import annotations

import atexit
import contextlib
import os
import stat
import time
from typing import TYPE_CHECKING

from gputasks.fingerprint.hashing import special_file
from gputasks.fingerprint.statcache import StatCache
from gputasks.layout import Layout

if TYPE_CHECKING:
    from collections.abc import Callable

_shared: dict[tuple[int, str], Digests] = {}

QUIET_S = 0.5
"""Hashing for less than this is not worth a word."""

EVERY_S = 0.1
"""Time between two calls of a progress display."""


class Digests:
    """Digests of files and folders under one state folder.

    Args:
        layout: where the stat cache and the manifests lie; relative paths are relative to its root.

    `progress` may be set to a function of a path and the bytes read of it so far, called at most
    every 0.1 s and only when there is something to wait for.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.cache = StatCache(layout.stat_cache, layout.root)
        self.progress: Callable[[str, int], None] | None = None
        self._known: dict[str, str] = {}
        self._current = ""
        self._bytes = 0
        self._next = 0.0

    @classmethod
    def shared(cls, layout: Layout) -> Digests:
        """The one of this process and state folder; saves what it found out when the process ends.

        A forked child has its own: what it learns gets to the parent through the cache file.
        """
        root = os.path.abspath(layout.root)
        key = (os.getpid(), root)
        found = _shared.get(key)
        if found is None:
            found = _shared[key] = cls(Layout(root))
            atexit.register(_save_at_exit, found, key)
        return found

    def path(self, path: str) -> str:
        """`blake3:<hex>` of a file, `tree:blake3:<hex>` of a folder; links are followed.

        Raises:
            FileNotFoundError: nothing is there, or a link leads nowhere.
            OSError: the file cannot be read.
            MachineError: something in the folder cannot be read.
            ConfigError: neither file nor folder, or a fifo, socket or device in the folder.
        """
        found = self._known.get(path)
        if found is None:
            found = self._known[path] = self._look(path)
        return found

    def _look(self, path: str) -> str:
        try:
            info = os.stat(self.cache.full(path))
        except NotADirectoryError as error:
            raise FileNotFoundError(error.errno, error.strerror, path) from error
        self._current, self._bytes, self._next = path, 0, time.monotonic() + QUIET_S
        tick = None if self.progress is None else self._tick
        if stat.S_ISDIR(info.st_mode):
            from gputasks.fingerprint.trees import tree_digest

            key = path.rstrip("/") or path
            return tree_digest(key, self.cache, manifests=self.layout.trees, tick=tick).digest
        if not stat.S_ISREG(info.st_mode):
            raise special_file(path, info.st_mode)
        return self.cache.digest(path, info, tick)

    def _tick(self, count: int) -> None:
        self._bytes += count
        now = time.monotonic()
        if self.progress is not None and now >= self._next:
            self._next = now + EVERY_S
            self.progress(self._current, self._bytes)

    def invalidate(self) -> None:
        """Look again from now on: an action ran, which may have changed anything."""
        self._known.clear()

    @staticmethod
    def invalidate_shared() -> None:
        """Look again in all state folders of this process."""
        for digests in _shared.values():
            digests.invalidate()

    def save(self) -> None:
        """Keep what was found out for the next process, where the state folder can be written."""
        # At the end of a process the project may be gone: never make it again for a cache.
        if self.cache.dirty and os.path.isdir(self.layout.root):
            with contextlib.suppress(OSError):
                self.layout.prepare()
                self.cache.save()


def _save_at_exit(digests: Digests, key: tuple[int, str]) -> None:
    if key[0] == os.getpid():
        digests.save()
