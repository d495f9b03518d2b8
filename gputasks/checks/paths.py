"""Paths of a run: one spelling for each, relative to the folder of dodo.py.

doit joins tasks by equal strings, so `./data/`, `data//` and `/project/data` all become `data`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from gputasks.checks.faults import shown
from gputasks.checks.values import has_control, unsendable
from gputasks.layout import STATE_DIR

if TYPE_CHECKING:
    from gputasks.checks.faults import Faults


def clean_path(faults: Faults, key: str, value: Any) -> str:
    """A path in its one spelling; empty after a fault.

    An absolute path inside the project becomes relative, any other stays absolute.  Links are not
    followed: the spelling is the identity, as it is for doit.
    """
    raw = as_text(value)
    if not isinstance(raw, str) or not raw:
        faults.must(key, "a path", value)
        return ""
    if has_control(raw) or unsendable(raw):
        faults.must(key, "a path without control characters", value)
        return ""
    if raw.startswith("~"):
        faults.add(
            f"`~` is not expanded in `{key}` of {faults.owner}: {shown(raw)}",
            key,
            hint=f"write `{os.path.expanduser(raw)}`, or `./{raw}` for a file of that name",
        )
        return ""
    path = os.path.normpath(raw)
    if os.path.isabs(path):
        path = "/" + path.lstrip("/")  # normpath keeps `//x`, as POSIX allows
        root = os.getcwd()
        if path == root or path.startswith(root.rstrip("/") + "/"):
            path = os.path.relpath(path, root)
    return path


def as_text(value: Any) -> Any:
    """The text of a path object; anything else as it is."""
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def is_outside(path: str) -> bool:
    """True for a clean path that is not below the project."""
    return os.path.isabs(path) or path == ".." or path.startswith("../")


def contains(folder: str, path: str) -> bool:
    """True when a clean path is the folder or lies in it."""
    if folder == path:
        return True
    if folder == ".":
        return not is_outside(path)
    return path.startswith(folder.rstrip("/") + "/")


def script_path(faults: Faults, value: Any) -> str:
    """The script of a training: an existing file of the project."""
    path = clean_path(faults, "script", value)
    if not path:
        return ""
    if is_outside(path):
        faults.add(
            f"script `{path}` is outside the project", "script", facts=[f"project: {os.getcwd()}"]
        )
    elif not os.path.isfile(path):
        fault = "is a folder" if os.path.isdir(path) else "is missing"
        hint, fact = _near_script(path)
        faults.add(f"script `{path}` {fault}", "script", hint=hint, facts=[fact] if fact else [])
    return path


def _near_script(path: str) -> tuple[str, str]:
    """A hint that names an existing script, or a fact that tells where was looked."""
    from gputasks.errors import nearest

    folder, name = (path, "") if os.path.isdir(path) else os.path.split(path)
    try:
        scripts = [n for n in os.listdir(folder or ".") if n.endswith(".py")]
    except OSError:
        return "", f"there is no folder `{folder}` in {os.getcwd()}"
    close = scripts[0] if len(scripts) == 1 else nearest(name, scripts) if name else ""
    if close:
        return f"did you mean `{os.path.join(folder, close)}`?", ""
    return "", f"looked in: {os.path.join(os.getcwd(), folder)}"


def input_paths(faults: Faults, value: Any) -> tuple[str, ...]:
    """`file_dep`: files and folders, each once.  They need not exist: a task may make them."""
    paths: dict[str, None] = {}
    for item in items(faults, "file_dep", value):
        path = clean_path(faults, "file_dep", item)
        if not path:
            continue
        if contains(STATE_DIR, path):
            faults.add(
                f"`{path}` in `file_dep` of {faults.owner} is gputasks' own and never an input",
                "file_dep",
            )
        elif _is_pattern(path):
            faults.add(
                f"`{path}` in `file_dep` of {faults.owner} does not exist, and"
                " patterns are not expanded",
                "file_dep",
                hint=f'name the folder, or use `sorted(glob.glob("{path}"))` in dodo.py',
            )
        else:
            paths[path] = None
    return tuple(paths)


def _is_pattern(path: str) -> bool:
    if not any(c in path for c in "*?[") or os.path.lexists(path):
        return False
    if "*" in path or "?" in path:
        return True
    # A path with brackets that is yet to be made is a path; one that finds files is a pattern.
    import glob

    return bool(glob.glob(path))


def items(faults: Faults, key: str, value: Any) -> list[Any]:
    """The items of a list of paths; one path alone is a slip, as Python would take its letters."""
    if isinstance(value, (str, bytes, os.PathLike)):
        faults.must(key, "a list", value, hint=f'write `{key}=["{as_text(value)}"]`')
        return []
    if isinstance(value, dict) or not hasattr(value, "__iter__"):
        faults.must(key, "a list of paths", value)
        return []
    return sorted(value, key=str) if isinstance(value, (set, frozenset)) else list(value)
