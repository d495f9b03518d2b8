"""What a container sees of this machine: the project, read-only, and where it may write.

The project lies at its own absolute path.  A folder that holds an artifact is writable for *new*
names, and everything that stands in it already is mounted read-only on top, except the artifacts.
So a script may make its artifact in any way it does on the host: as a file or a folder, in place or
by a rename; nobody has to know beforehand which it will be.  Nothing else can be written.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from gputasks.frozen import Frozen, spec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gputasks.specs import Run

MOST = 500
"""Names in one folder that are protected one by one; folders and inputs come first."""


@spec
class Mount(Frozen):
    """One bind mount.  An `optional` source may vanish before the container starts."""

    source: str
    target: str
    read_only: bool = True
    optional: bool = False


def project_mounts(run: Run, root: str, inputs: Iterable[str] = ()) -> list[Mount]:
    """The project, its inputs elsewhere, and the folders of its artifacts, which are made here.

    Args:
        run: what will be started.
        root: absolute folder of dodo.py.
        inputs: paths that the run reads, relative to `root` or absolute.

    Raises:
        OSError: a folder for an artifact cannot be made.

    """
    paths = [os.path.join(root, a.path) for a in run.artifacts]
    for path in paths:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    reads = [os.path.join(root, p) for p in inputs]
    opened = _opened(paths)
    found = {root: Mount(root, root, root not in opened)}
    for folder in opened:
        found[folder] = Mount(folder, folder, read_only=False)
        for name in _protected(folder, paths, reads):
            found.setdefault(name, Mount(name, name, optional=True))
    for path in reads:
        for target in _outside(path, root):
            found.setdefault(target, Mount(os.path.realpath(path), target))
    for path in paths:
        for target in _outside(path, root) if os.path.islink(path) else ():
            found[target] = Mount(os.path.realpath(path), target, read_only=False)
    return list(found.values())


def _opened(artifacts: list[str]) -> list[str]:
    """Folders that hold artifacts, without those that are part of one."""
    folders = {os.path.realpath(os.path.dirname(p)) for p in artifacts}
    return sorted(f for f in folders if not any(_within(f, p) for p in artifacts))


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _protected(folder: str, artifacts: list[str], inputs: list[str]) -> list[str]:
    """What stands in an opened folder and is no artifact: files and folders, no links."""
    mine = {os.path.join(os.path.realpath(os.path.dirname(p)), os.path.basename(p))
            for p in artifacts}  # fmt: skip
    read = set(inputs)
    found: list[tuple[int, str]] = []
    for entry in os.scandir(folder):
        if entry.path in mine or entry.is_symlink():
            continue
        if entry.is_dir():
            found.append((0, entry.path))
        elif stat.S_ISREG(entry.stat().st_mode):
            found.append((0 if entry.path in read else 1, entry.path))
    return [path for _, path in sorted(found)[:MOST]]


def _outside(path: str, root: str) -> Iterator[str]:
    """The places outside the project at which a path, or what it links to, is expected."""
    for _ in range(40):  # as many links as the kernel follows
        if not _within(path, root):
            yield path
        if not os.path.islink(path):
            break
        path = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))
    real = os.path.realpath(path)
    if real != path and not _within(real, root):
        yield real
