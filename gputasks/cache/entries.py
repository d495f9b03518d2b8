"""What the cache knows of a run: its inputs, and each artifact as a list of files by content."""

from __future__ import annotations

import os
from dataclasses import asdict, field
from typing import TYPE_CHECKING, Any

from gputasks.artifacts.outputs import files_of
from gputasks.fingerprint import read_manifest
from gputasks.frozen import Frozen, spec
from gputasks.layout import read_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gputasks.layout import Layout

VERSION = 1

FILE, LINK = "file", "link"


@spec
class Entry(Frozen):
    """One finished run.

    Args:
        key: digest of the inputs.
        task: name of the task that ran.
        run: id of the run.
        stored: Unix time.
        receipt: the receipt, as data.
        facts: what the framework told, e.g. `best_model_path`.
        files: artifact's name -> rows of `[kind, path below the artifact, digest or link's text,
            executable, size in bytes]`; the path is empty when the artifact is a file.

    """

    key: str
    task: str
    run: str
    stored: float
    receipt: Mapping[str, Any]
    facts: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, list[list[Any]]] = field(default_factory=dict)
    version: int = VERSION

    @property
    def objects(self) -> dict[str, int]:
        """Sizes of all contents by digest; equal files count once."""
        return {row[2]: row[4] for rows in self.files.values() for row in rows if row[0] == FILE}


def read_entry(path: str) -> Entry | None:
    """An entry, or None when there is none or it cannot be read."""
    value = read_json(path)
    if not isinstance(value, dict) or value.get("version") != VERSION:
        return None
    try:
        return Entry(**value)
    except TypeError:
        return None


def as_data(entry: Entry) -> dict[str, Any]:
    """For JSON."""
    return asdict(entry)


def rows_of(path: str, digest: str, layout: Layout) -> list[list[Any]] | None:
    """The files of a finished artifact; None when its manifest is not known any more.

    Digests come from the manifest that was made when the artifact was digested: nothing is read
    again here, and the copy is compared with them.

    Args:
        path: of the artifact.
        digest: of the artifact, as in its receipt.
        layout: where manifests lie.

    Raises:
        OSError: a file has gone since.

    """
    if not digest.startswith("tree:"):
        return [_row("", path, digest.removeprefix("blake3:"))]
    manifest = read_manifest(digest, layout)
    if manifest is None:
        return None
    rows = []
    for name, content in manifest.items():
        full = os.path.join(path, name)
        if content[0] == "L" or _stays_inside(full, path):
            rows.append([LINK, name, os.readlink(full), False, 0])
        else:
            rows.append(_row(name, full, content[1:]))
    return rows


def _row(name: str, full: str, digest: str) -> list[Any]:
    info = os.stat(full)
    return [FILE, name, digest, bool(info.st_mode & 0o100), info.st_size]


def _stays_inside(path: str, root: str) -> bool:
    """A link like `last.ckpt -> best.ckpt`: kept as the link that it is."""
    if not os.path.islink(path):
        return False
    text = os.readlink(path)
    if os.path.isabs(text):
        return False
    target = os.path.normpath(os.path.join(os.path.dirname(path), text))
    return target.startswith(os.path.normpath(root) + os.sep)


def total_bytes(path: str) -> int:
    """Size of what stands at an artifact's path; a file that links lead to counts once."""
    infos = [os.stat(p) for p in files_of(path)]
    return sum({(i.st_dev, i.st_ino): i.st_size for i in infos}.values())
