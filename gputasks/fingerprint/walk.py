"""The entries of a folder that count, in one stable order: its files by name, then its folders.

What counts: regular files.  A link to a file counts as that file, a link to a folder as that
folder, and a link that leads nowhere, or back to a folder it lies in, by the text of its target.
What does not: folders themselves, so empty ones neither (git does not carry them), permissions,
owners, and `.git`, `.gputasks`, `__pycache__`, `*.pyc`.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

from gputasks.errors import MachineError
from gputasks.fingerprint.hashing import special_file, state_of

if TYPE_CHECKING:
    from collections.abc import Iterator

NEVER = frozenset((".git", ".gputasks", "__pycache__"))
"""Names that never count, as folders or as files (`.git` is a file in a submodule)."""

LINK = "-> "
"""How the state of a link that counts by its text begins; no state of a file does."""


def walk(root: str, shown: str = "") -> Iterator[list[tuple[str, str]]]:
    """`(path relative to root, state)` of what counts, one list for each folder with entries.

    Args:
        root: a folder or a link to one.
        shown: its name in errors, when another one.

    Raises:
        FileNotFoundError: `root` is not there.
        MachineError: a folder or a link's target cannot be looked at.
        ConfigError: a fifo, socket or device is among the entries.
    """
    shown = shown or root
    stack = [""]
    while stack:
        prefix = stack.pop()
        found: list[tuple[str, str]] = []
        folders: list[str] = []
        try:
            with os.scandir(f"{root}/{prefix}") as entries:
                for entry in entries:
                    name = entry.name
                    if name in NEVER or name.endswith(".pyc"):
                        continue
                    try:
                        if entry.is_file(follow_symlinks=False):
                            state = state_of(entry.stat(follow_symlinks=False))
                            found.append((prefix + name, state))
                        elif entry.is_dir(follow_symlinks=False):
                            folders.append(name)
                        else:
                            _other(entry, (root, shown, prefix), found, folders)
                    except FileNotFoundError:
                        continue  # removed since it was listed
        except FileNotFoundError:
            if not prefix:
                raise
        except OSError as error:
            path = str(error.filename or f"{root}/{prefix}")
            if path.startswith(root):
                path = shown + path[len(root) :]
            reason = f"`{path.rstrip('/') or '/'}` cannot be read: {error.strerror}"
            raise MachineError(reason) from error
        if found:
            found.sort()
            yield found
        folders.sort(reverse=True)
        stack.extend([f"{prefix}{name}/" for name in folders])


def _other(
    entry: os.DirEntry[str],
    where: tuple[str, str, str],
    found: list[tuple[str, str]],
    folders: list[str],
) -> None:
    """Sort in a link, or refuse what has no content; `where` is root, its shown name, prefix."""
    root, shown, prefix = where
    name = prefix + entry.name
    if not entry.is_symlink():
        raise special_file(f"{shown}/{name}", entry.stat(follow_symlinks=False).st_mode)
    try:
        info = entry.stat()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise
        found.append((name, LINK + os.readlink(entry.path)))
        return
    if stat.S_ISREG(info.st_mode):
        found.append((name, state_of(info)))
    elif not stat.S_ISDIR(info.st_mode):
        raise special_file(f"{shown}/{name}", info.st_mode)
    elif _leads_back(info, root, prefix):
        found.append((name, LINK + os.readlink(entry.path)))
    else:
        folders.append(entry.name)


def _leads_back(info: os.stat_result, root: str, prefix: str) -> bool:
    """True when a folder is one of those that were passed on the way to `prefix`."""
    path = f"{root}/{prefix}".rstrip("/")
    while len(path) >= len(root):
        if os.path.samestat(info, os.stat(path or "/")):
            return True
        if path == root:
            return False
        path = path.rpartition("/")[0]
    return False
