"""What was in a folder when it was digested, kept by its digest, to tell later what changed.

A manifest is one record per entry, in the order of `walk`: `F` or `L`, the hex BLAKE3 of the
content or of the link's text, a space, the relative path, NUL.  Its own BLAKE3 is the digest of the
folder, so that a file under `trees/` can only be right or damaged.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from typing import TYPE_CHECKING

from gputasks.layout import write_whole

if TYPE_CHECKING:
    from gputasks.layout import Layout

_EMPTY = "Faf1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
"""Of an empty file: equal ones have nothing to do with each other."""

LIMIT = 5
"""Names that are told before `and N more`."""


class Writer:
    """Takes the entries of a folder in order; holds them compressed."""

    def __init__(self) -> None:
        from blake3 import blake3

        self._hasher = blake3()
        self._deflate = zlib.compressobj(1)
        self._packed: list[bytes] = []
        self._records: list[str] = []

    def add(self, kind: str, name: str, digest: str) -> None:
        """One entry; `digest` without its prefix."""
        self._records.append(f"{kind}{digest} {name}\0")
        if len(self._records) >= 1000:
            self._flush()

    def _flush(self) -> None:
        data = "".join(self._records).encode("utf-8", "surrogateescape")
        self._records = []
        self._hasher.update(data)
        self._packed.append(self._deflate.compress(data))

    def finish(self, folder: str = "") -> str:
        """The digest, `blake3:<hex>`; the manifest is kept in `folder` when that can be written."""
        self._flush()
        name = str(self._hasher.hexdigest())
        path = os.path.join(folder, name)
        if folder and not os.path.exists(path):
            with contextlib.suppress(OSError):
                data = b"".join([*self._packed, self._deflate.flush()])
                write_whole(path, data, sync=False)
        return f"blake3:{name}"


def read_manifest(digest: str, layout: Layout) -> dict[str, str] | None:
    """Kind and hex digest of the content by relative path; None when not known any more."""
    try:
        with open(os.path.join(layout.trees, digest.rpartition(":")[2]), "rb") as file:
            text = zlib.decompress(file.read()).decode("utf-8", "surrogateescape")
    except (OSError, ValueError, zlib.error):
        return None
    # One letter, 64 hex digits, one space, the path.
    return {record[66:]: record[:65] for record in text.split("\0")[:-1]}


def diff(old: str, new: str, *, layout: Layout, prefix: str = "", limit: int = LIMIT) -> list[str]:
    """What differs between two folders, for people; empty when one of them is not known any more.

    Args:
        old: digest of a folder, `tree:blake3:<hex>`.
        new: another one.
        layout: where manifests lie.
        prefix: path of the folder, put before each name.
        limit: lines before `and N more`.
    """
    before, after = read_manifest(old, layout), read_manifest(new, layout)
    if before is None or after is None:
        return []
    lines = _differences(before, after, prefix)
    if len(lines) > limit:
        lines[limit:] = [f"and {len(lines) - limit} more"]
    return lines


def _differences(before: dict[str, str], after: dict[str, str], prefix: str) -> list[str]:
    gone = {name: digest for name, digest in before.items() if name not in after}
    came: dict[str, list[str]] = {}
    for name, digest in after.items():
        if name not in before:
            came.setdefault(digest, []).append(name)
    told: list[tuple[str, str]] = []
    for name, digest in gone.items():
        candidates = came.get(digest)
        if candidates and digest != _EMPTY:
            other = candidates.pop(0)
            told.append((name, f"renamed {_shown(prefix, name)} -> {_shown(prefix, other)}"))
        else:
            told.append((name, f"{_shown(prefix, name)} removed"))
    told += [(n, f"{_shown(prefix, n)} added") for names in came.values() for n in names]
    told += [
        (name, f"{_shown(prefix, name)} changed")
        for name, digest in after.items()
        if name in before and before[name] != digest
    ]
    return [text for _, text in sorted(told)]


def _shown(prefix: str, name: str) -> str:
    """A path that stays on one line of a terminal, whatever bytes the name holds."""
    path = os.path.join(prefix, name)
    text = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join([c if c.isprintable() else c.encode("unicode_escape").decode() for c in text])
