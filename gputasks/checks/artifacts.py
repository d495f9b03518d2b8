"""The fields of `Artifact`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from gputasks.checks.faults import Faults
from gputasks.checks.paths import as_text, clean_path, contains, is_outside
from gputasks.checks.values import has_control
from gputasks.layout import STATE_DIR

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def artifact_fields(
    name: Any, path: Any = "", extra: Sequence[Any] = (), unknown: Mapping[str, Any] | None = None
) -> tuple[str, str]:
    """Name and path of an artifact.

    A path is relative to the folder of dodo.py, inside it, and not the folder itself.  A name that
    is given apart from the path is one word without `/`, so that it can stand in a command line and
    be a file name; an artifact without one is named by its path.

    Raises:
        ConfigError: every fault of the call.

    """
    faults = Faults("`Artifact`")
    if extra:
        faults.add(f"`Artifact` takes a name and a path; got {len(extra)} more")
    faults.unknown(unknown or {}, ("name", "path"))
    own_name = path is None or path == ""
    clean = clean_path(faults, "path", name if own_name else path)
    if clean:
        _check_artifact_path(faults, clean)
    if own_name or as_text(name) in (as_text(path), clean):
        name = clean
    elif (
        not isinstance(name, str)
        or not name
        or name.startswith("-")
        or has_control(name)
        or any(c in name for c in "/ ")
    ):
        faults.must("name", "one word without `/`", name)
    faults.finish()
    return str(name), clean


def _check_artifact_path(faults: Faults, path: str) -> None:
    if path == ".":
        faults.add(
            "artifact `.` would be the whole project", "path", hint='name a folder, e.g. `"out"`'
        )
    elif is_outside(path):
        faults.add(
            f"artifact `{path}` is outside the project",
            "path",
            facts=[f"project: {os.getcwd()}"],
            hint="a link inside the project may lead there",
        )
    elif contains(STATE_DIR, path):
        faults.add(f"artifact `{path}` lies in `{STATE_DIR}`, which is gputasks' own", "path")
    elif ("*" in path or "?" in path) and not os.path.lexists(path):
        folder = os.path.dirname(path)
        faults.add(
            f"artifact `{path}` is a pattern, and patterns are not expanded",
            "path",
            hint=f'an artifact may be a folder: `"{folder}"`'
            if folder and "*" not in folder
            else "",
        )
