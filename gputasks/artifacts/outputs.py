"""What a run left at its declared paths: all files, new, whole and on disk."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from gputasks.artifacts.formats import CHECKPOINTS, checkable, fault

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gputasks.specs import Artifact

State = dict[str, tuple[int, int, int, int]]
"""path -> (inode, size, mtime_ns, ctime_ns)"""


def files_of(path: str) -> Iterator[str]:
    """The files at a declared path, links followed, in a stable order."""
    if os.path.isdir(path):
        for folder, folders, names in os.walk(path, followlinks=True):
            folders.sort()
            for name in sorted(names):
                yield os.path.join(folder, name)
    elif os.path.lexists(path):
        yield path


def state_of(artifacts: Sequence[Artifact]) -> State:
    """What stands at the declared paths now, to tell later what is new."""
    state: State = {}
    for artifact in artifacts:
        for path in files_of(artifact.path):
            with contextlib.suppress(OSError):
                info = os.stat(path)
                state[path] = (info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)
    return state


def faults(artifacts: Sequence[Artifact], before: State, *, started: float) -> list[str]:
    """Why these artifacts are not what a finished run leaves; empty when all is well.

    "New" is asked of each artifact as a set: a resumed run may keep the best checkpoint of an
    earlier epoch, but it must have written something.

    Args:
        artifacts: what was declared.
        before: `state_of` just before the start.
        started: Unix time of the start, to name files that appeared elsewhere.

    """
    said: list[str] = []
    for artifact in artifacts:
        paths = list(files_of(artifact.path))
        name = (
            artifact.name
            if artifact.name == artifact.path
            else f"{artifact.name}` at `{artifact.path}"
        )
        if not os.path.lexists(artifact.path):
            said.append(f"declared `{name}` is missing{_elsewhere(artifact.path, started)}")
        elif not paths:
            said.append(f"declared `{name}` is an empty folder{_elsewhere(artifact.path, started)}")
        elif all(_unchanged(p, before) for p in paths):
            said.append(f"declared `{name}` is not new: it was there before the run, unchanged")
        else:
            broken = [(p, why) for p in paths if (why := _fault(p, artifact.path))]
            said.extend(f"`{p}` is {why}" for p, why in broken[:5])
    return said


def _fault(path: str, declared: str) -> str:
    why = fault(path)
    # An empty marker file inside a folder is common and means nothing.
    return "" if why == "empty" and path != declared else why


def _unchanged(path: str, before: State) -> bool:
    try:
        info = os.stat(path)
    except OSError:
        return False
    return before.get(path) == (info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)


def _elsewhere(path: str, started: float) -> str:
    """`; new files seen: …`: a misspelt name is the usual reason for a missing file."""
    folder = path if os.path.isdir(path) else os.path.dirname(path) or "."
    while folder and not os.path.isdir(folder):
        folder = os.path.dirname(folder) or "."
    seen: list[str] = []
    for base, folders, names in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith(".") and f != "__pycache__")
        if base.count(os.sep) - folder.count(os.sep) >= 2:
            folders.clear()
        for name in sorted(names):
            candidate = os.path.normpath(os.path.join(base, name))
            with contextlib.suppress(OSError):
                if os.stat(candidate).st_mtime >= started - 1 and not name.endswith(".pyc"):
                    seen.append(candidate)
        if len(seen) > 100:
            break
    if not seen:
        return ""
    more = f" and {len(seen) - 5} more" if len(seen) > 5 else ""
    return "; new files seen: " + ", ".join(f"`{s}`" for s in seen[:5]) + more


def sync_to_disk(artifacts: Sequence[Artifact]) -> None:
    """Ask the kernel to write the artifacts out: a receipt must not outlive its files.

    Raises:
        OSError: the disk could not take what the process believed it had written.

    """
    for artifact in artifacts:
        for path in files_of(artifact.path):
            with open(path, "rb") as file:
                os.fsync(file.fileno())


def newest_checkpoint(places: Iterable[str], *, ended: float) -> tuple[str | None, dict[str, str]]:
    """The newest checkpoint that opens, and what was passed over as broken.

    A file of a format that cannot be checked counts only if the run lived on for a second after
    its last write: else it may be half of one.

    Args:
        places: files and folders in which to look.
        ended: Unix time of the last sign of life of the run that wrote them.

    Returns:
        The path or None; what is wrong with each file that is newer than it.

    """
    found: list[tuple[int, str]] = []
    for place in places:
        for path in files_of(place):
            if path.lower().endswith(CHECKPOINTS):
                with contextlib.suppress(OSError):
                    found.append((os.stat(path).st_mtime_ns, path))
    passed: dict[str, str] = {}
    for written, path in sorted(found, reverse=True):
        why = fault(path)
        if not why and not checkable(path) and written / 1e9 > ended - 1:
            why = "of a format that cannot be checked, and was being written at the end"
        if not why:
            return path, passed
        passed[path] = why
    return None, passed
