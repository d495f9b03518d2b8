"""What is known of files by their state, so that an untouched file is never read twice.

One JSON file with a few tables, small enough to be read at each start, and one file of rows for
each folder that was digested, read only when something in that folder changed.  It is only a cache:
a file that is missing, damaged or cannot be written costs time, never an error and never a wrong
answer (a checksum guards it).  Several processes may use it: files are replaced as a whole, and
what others wrote meanwhile is kept.
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from itertools import islice
from typing import Any

from gputasks.fingerprint.hashing import hash_state, state_of
from gputasks.layout import write_whole

Table = dict[str, Any]

FILES = "files"
"""path -> [state, digest, 0 or the time at which a state that is not settled was seen first]"""

TREES = "trees"
"""path of a folder -> [signature, digest, files, bytes]"""

_MAGIC = b"gputasks stat cache 1 "
_MANY = 20_000
"""Rows above which those of files that are gone are dropped; a disk may just be unmounted."""


class StatCache:
    """Tables of what was found out about paths.

    Args:
        path: the cache file; `path + "-trees"` is the folder of rows.
        root: what relative paths are relative to.
    """

    def __init__(self, path: str, root: str = "") -> None:
        self.path = path
        self.root = "" if root == "." else root
        self._tables: dict[str, Table] | None = None
        self._ours: dict[str, Table] = {}
        self._loaded: tuple[int, ...] = ()

    def full(self, path: str) -> str:
        """The path to open."""
        return os.path.join(self.root, path) if self.root else path

    def digest(self, path: str, info: os.stat_result | None = None, tick: Any = None) -> str:
        """The digest of a file, from its state when that is known and settled.

        Args:
            path: relative to `root`, or absolute.
            info: what `os.stat` said just now, when it was asked already.
            tick: see `hashing.file_digest`.

        Raises:
            OSError: missing, unreadable, a folder.
            ConfigError: neither file nor folder.
        """
        state = state_of(os.stat(self.full(path)) if info is None else info)
        row = self.get(FILES, path)
        if (not row or row[0] != state or row[2]) and self.refresh():
            row = self.get(FILES, path)
        seen = row[2] if row and row[0] == state else 0
        if row and row[0] == state and not seen:
            return str(row[1])
        digest, state, seen = hash_state(self.full(path), state, seen, tick)
        self.put(FILES, path, [state, digest, seen])
        return digest

    @property
    def dirty(self) -> bool:
        """True when there is something to save."""
        return bool(self._ours)

    def get(self, table: str, key: str) -> Any:
        """What is known, or None."""
        tables = self._tables if self._tables is not None else self._load()
        return tables.get(table, {}).get(key)

    def put(self, table: str, key: str, value: Any) -> None:
        """Note a JSON value down, for `save`."""
        tables = self._tables if self._tables is not None else self._load()
        tables.setdefault(table, {})[key] = value
        self._ours.setdefault(table, {})[key] = value

    def refresh(self) -> bool:
        """Read the file again when another process has replaced it; True when it was read."""
        if self._tables is None or self._identity() == self._loaded:
            return False
        self._load()
        return True

    def save(self) -> None:
        """Write what this process found out.  Where that cannot be done, nothing happens."""
        if not self._ours:
            return
        self.refresh()
        tables = {name: dict(rows) for name, rows in (self._tables or {}).items()}
        for name, rows in tables.items():
            if name != TREES and len(rows) > _MANY:
                tables[name] = {k: v for k, v in rows.items() if os.path.lexists(self.full(k))}
        body = json.dumps(tables, separators=(",", ":")).encode()
        try:
            write_whole(self.path, _MAGIC + b"%08x\n" % zlib.crc32(body) + body, sync=False)
        except OSError:
            return  # read-only or full: the next process finds it out again
        self._ours = {}
        self._tables = tables
        self._loaded = self._identity()

    def rows(self, path: str) -> dict[str, str]:
        """Rows of one folder, as `save_rows` got them."""
        try:
            with open(self._rows_path(path), "rb") as file:
                words = zlib.decompress(file.read()).decode("utf-8", "surrogateescape").split("\0")
        except (OSError, ValueError, zlib.error):
            return {}
        return dict(zip(words[:-1:2], words[1::2], strict=False))

    def save_rows(self, path: str, rows: dict[str, str]) -> None:
        """Keep the rows of a folder: texts without NUL by texts without NUL."""
        deflate = zlib.compressobj(1)
        packed = []
        items = iter(rows.items())
        while some := list(islice(items, 1000)):
            text = "".join([f"{name}\0{row}\0" for name, row in some])
            packed.append(deflate.compress(text.encode("utf-8", "surrogateescape")))
        data = b"".join([*packed, deflate.flush()])
        with contextlib.suppress(OSError):
            write_whole(self._rows_path(path), data, sync=False)

    def _rows_path(self, path: str) -> str:
        from blake3 import blake3

        name = blake3(os.fsencode(path)).hexdigest(length=16)
        return os.path.join(self.path + "-trees", name)

    def _identity(self) -> tuple[int, ...]:
        try:
            info = os.stat(self.path)
        except OSError:
            return ()
        return info.st_ino, info.st_mtime_ns, info.st_size

    def _load(self) -> dict[str, Table]:
        self._loaded = self._identity()
        tables = _parse(self.path)
        for name, rows in list(self._ours.items()):
            tables.setdefault(name, {}).update(rows)
        self._tables = tables
        return tables


def _parse(path: str) -> dict[str, Table]:
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError:
        return {}
    head, _, body = data.partition(b"\n")
    # The checksum makes this a file of ours, undamaged, so that its shape need not be checked.
    if head != _MAGIC + b"%08x" % zlib.crc32(body):
        return {}
    tables: dict[str, Table] = json.loads(body)
    return tables
