"""Moving artifacts aside and back.  Nothing is destroyed: what stood in the way can be told of."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from typing import TYPE_CHECKING

from gputasks.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gputasks.specs import Artifact


def check_writable(artifacts: Sequence[Artifact]) -> None:
    """Every declared path can be written, so that hours of training are not for nothing.

    Raises:
        MachineError: naming each path and who owns it.

    """
    bad = [p for a in artifacts for p in [_obstacle(a.path)] if p]
    if bad:
        raise MachineError(
            f"`{bad[0]}` is not writable" if len(bad) == 1 else "artifacts cannot be written",
            facts=[_ownership(p) for p in bad],
            hint=f"`ls -ld {bad[0]}` shows who may write there",
        )


def _obstacle(path: str) -> str:
    if os.path.isdir(path):
        if not os.access(path, os.W_OK | os.X_OK):
            return path
    elif os.path.exists(path) and not os.access(path, os.W_OK):
        return path
    parent = os.path.dirname(path) or "."
    while not os.path.exists(parent):
        parent = os.path.dirname(parent) or "."
    return "" if os.path.isdir(parent) and os.access(parent, os.W_OK | os.X_OK) else parent


def _ownership(path: str) -> str:
    info = os.stat(path)
    mode, uid = f"{info.st_mode & 0o7777:o}", info.st_uid
    return f"{path}: mode {mode}, owner uid {uid}, this is uid {os.geteuid()}"


def set_aside(artifacts: Iterable[Artifact], folder: str) -> list[str]:
    """Move what stands at the declared paths into `folder`, under the artifacts' paths.

    Returns:
        Where each thing went.

    Raises:
        MachineError: it cannot be moved; what was moved before stays moved.

    """
    moved = []
    for artifact in artifacts:
        if os.path.lexists(artifact.path):
            destination = os.path.join(folder, artifact.path)
            moved.append(_move(artifact.path, destination))
    return moved


def copy_aside(artifacts: Iterable[Artifact], folder: str) -> list[str]:
    """Copy what stands at the declared paths into `folder`, under the artifacts' paths.

    Returns:
        Where each copy is.

    Raises:
        MachineError: it cannot be copied.

    """
    copied = []
    for artifact in artifacts:
        destination = os.path.join(folder, artifact.path)
        try:
            os.makedirs(os.path.dirname(destination), exist_ok=True)
            if os.path.isdir(artifact.path):
                shutil.copytree(artifact.path, destination, symlinks=True)
            else:
                shutil.copy2(artifact.path, destination)
        except (OSError, shutil.Error) as error:
            raise MachineError(f"cannot copy `{artifact.path}`: {error}") from error
        copied.append(destination)
    return copied


def put_back(artifacts: Iterable[Artifact], folder: str) -> bool:
    """Undo `set_aside` for what is in `folder`; True when anything came back."""
    any_back = False
    for artifact in artifacts:
        source = os.path.join(folder, artifact.path)
        if os.path.lexists(source) and not os.path.lexists(artifact.path):
            _move(source, artifact.path)
            any_back = True
        elif os.path.isdir(source) and os.path.isdir(artifact.path):
            # The declared folder is a link or a mount point that stayed in place, emptied.
            for name in os.listdir(source):
                if not os.path.lexists(os.path.join(artifact.path, name)):
                    _move(os.path.join(source, name), os.path.join(artifact.path, name))
                    any_back = True
    return any_back


def _move(source: str, destination: str) -> str:
    try:
        os.makedirs(os.path.dirname(destination) or ".", exist_ok=True)
        if os.path.islink(source) and os.path.isdir(source):
            # The link is the user's way to another disk: empty the folder, keep the link.
            return _move_content(source, destination)
        try:
            os.rename(source, destination)
        except OSError as error:
            if error.errno == errno.EBUSY:  # a mount point
                return _move_content(source, destination)
            if error.errno != errno.EXDEV:
                raise
            shutil.move(source, destination)
    except OSError as error:
        raise MachineError(
            f"cannot move `{source}` aside: {error.strerror or error}",
            facts=[f"to: {destination}"],
        ) from error
    return destination


def _move_content(source: str, destination: str) -> str:
    os.makedirs(destination, exist_ok=True)
    for name in os.listdir(source):
        shutil.move(os.path.join(source, name), os.path.join(destination, name))
    return destination


def remove(path: str) -> None:
    """Remove a file or a folder of ours, as far as it goes."""
    with contextlib.suppress(OSError):
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)
