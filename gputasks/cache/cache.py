"""The cache: contents by digest, entries by the digest of a run's inputs.

====================== =========================================================================
v1/objects/AB/CDEF…    one file's content, named by its BLAKE3; read-only, written once
v1/entries/KEY.json    a finished run: its receipt, and which contents its artifacts consist of
v1/tmp/                copies that are not whole yet
====================== =========================================================================

An entry is written after all of its contents, so that a crash leaves contents without an entry,
which `gputasks gc` removes, and never the other way round.  Several processes, checkouts and users
may share a cache: every file in it is written under another name and renamed.  Nothing is believed
on the way back: each file is hashed as it is copied.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from gputasks.cache.copying import Cancelled, copy_file
from gputasks.cache.entries import FILE, Entry, as_data, read_entry, rows_of
from gputasks.cache.sweep import evict
from gputasks.layout import write_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gputasks.layout import Layout


class Damaged(Exception):  # noqa: N818  a finding, told by the caller
    """A content is not what its name says."""


class Cache:
    """One cache folder.

    Args:
        folder: made when something is stored.
        cap: bytes that it may take; the least recently used runs go first.
        floor: bytes that must stay free on its disk.

    """

    def __init__(self, folder: str, *, cap: int | None = None, floor: int | None = None) -> None:
        self.root = folder
        self.folder = os.path.join(folder, "v1")
        self.cap = cap
        self.floor = floor

    def object(self, digest: str) -> str:
        """Path of a content."""
        return os.path.join(self.folder, "objects", digest[:2], digest[2:])

    def entry(self, key: str) -> str:
        """Path of an entry."""
        return os.path.join(self.folder, "entries", f"{key.rpartition(':')[2]}.json")

    def find(self, key: str) -> Entry | None:
        """The entry of these inputs, if all of its contents are there, by name and size."""
        entry = read_entry(self.entry(key))
        if entry is None or entry.key != key:
            return None
        return entry if all(self._has(d, n) for d, n in entry.objects.items()) else None

    def _has(self, digest: str, size: int) -> bool:
        try:
            return os.path.getsize(self.object(digest)) == size
        except OSError:
            return False

    # -- storing -------------------------------------------------------------------------------

    def refusal(self, size: int) -> str:
        """Why outputs of so many bytes are not kept; empty when they are.

        Raises:
            OSError: the disk cannot be asked.

        """
        cap, floor = self.limits()
        if size > cap:
            return f"larger than the cache may be ({cap / 1e9:.1f} GB)"
        if self._free() - size < floor:
            evict(self, cap - size)
            if self._free() - size < floor:
                return f"less than {floor / 1e9:.1f} GB would stay free on its disk"
        return ""

    def limits(self) -> tuple[int, int]:
        """Cap and floor in bytes.

        By default a fifth of the disk, and a twentieth of it but no more than 10 GB.
        """
        disk = os.statvfs(_existing(self.root))
        whole = disk.f_blocks * disk.f_frsize
        cap = whole // 5 if self.cap is None else self.cap
        return cap, min(whole // 20, 10**10) if self.floor is None else self.floor

    def _free(self) -> int:
        disk = os.statvfs(_existing(self.root))
        return disk.f_bavail * disk.f_frsize

    def store(
        self,
        entry: Entry,
        artifacts: Sequence[tuple[str, str, str]],
        layout: Layout,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Keep a run.  True when all of it is in the cache.

        Args:
            entry: without its files.
            artifacts: name, path and digest of each.
            layout: where manifests lie.
            cancelled: asked now and then.

        Raises:
            OSError: no space, no permission.

        """
        files = {}
        for name, path, digest in artifacts:
            try:
                rows = rows_of(path, digest, layout)
                if rows is None:
                    return False
                for kind, below, content, _, _ in rows:
                    if kind == FILE and not self._take(
                        os.path.join(path, below), content, cancelled
                    ):
                        return False
            except (FileNotFoundError, Cancelled):
                return False  # removed by somebody since it was finished, or no time for it
            files[name] = rows
        self._make(os.path.join(self.folder, "entries"))
        path = self.entry(entry.key)
        data = as_data(entry) | {"files": files}
        write_json(path, data)
        self._open_up(path, 0o666)
        evict(self, self.limits()[0])
        return True

    def _take(self, source: str, digest: str, cancelled: Callable[[], bool]) -> bool:
        """Have a content; False when the file is not what it was when it was digested."""
        if digest == "":
            return False
        source = source.rstrip("/")
        target = self.object(digest)
        with contextlib.suppress(OSError):
            if os.path.getsize(target) == os.path.getsize(source):
                os.utime(target)  # young enough to outlive a clean-up until the entry is there
                return True
        temporary = self._temporary()
        self._make(os.path.dirname(target))
        try:
            found = copy_file(source, temporary, self._mode(0o444), cancelled)
            if found != digest:
                return False
            os.replace(temporary, target)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        return True

    def _temporary(self) -> str:
        folder = os.path.join(self.folder, "tmp")
        self._make(folder)
        return os.path.join(folder, f"{os.uname().nodename}-{os.getpid()}-{os.urandom(6).hex()}")

    def _make(self, folder: str) -> None:
        """Make a folder below the cache with the permissions of the outermost one.

        What a group shares has `chmod g+ws` there.
        """
        if os.path.isdir(folder):
            return
        if len(folder) > len(self.root):
            self._make(os.path.dirname(folder))
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder)
                self._open_up(folder, 0o7777)
        else:
            os.makedirs(folder, exist_ok=True)

    def _mode(self, most: int) -> int:
        """Read and write as the outermost folder allows them."""
        return os.stat(self.root).st_mode & most

    def _open_up(self, path: str, most: int) -> None:
        with contextlib.suppress(OSError):
            os.chmod(path, self._mode(most))

    # -- restoring -----------------------------------------------------------------------------

    def restore(
        self,
        entry: Entry,
        folder: str,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        """Copy a run's artifacts into `folder`, each at its path below it.

        Raises:
            Damaged: a content is not what its name says; it is removed.
            Cancelled: `cancelled` said so.
            OSError: no space, no permission.

        """
        mask = os.umask(0o077)
        os.umask(mask)
        made: set[str] = set()
        for name, rows in entry.files.items():
            base = os.path.join(folder, entry.receipt["outputs"][name]["path"])
            for kind, below, content, executable, _ in rows:
                target = os.path.join(base, below) if below else base
                parent = os.path.dirname(target)
                if parent not in made:
                    os.makedirs(parent, exist_ok=True)
                    made.add(parent)
                if kind != FILE:
                    os.symlink(content, target)
                    continue
                mode = (0o777 if executable else 0o666) & ~mask
                if copy_file(self.object(content), target, mode, cancelled) != content:
                    with contextlib.suppress(OSError):
                        os.unlink(self.object(content))
                    raise Damaged(content)
        with contextlib.suppress(OSError):
            os.utime(self.entry(entry.key))  # the least recently used goes first


def _existing(folder: str) -> str:
    while folder and not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return folder or "."
