"""Artifacts of a run: names and paths of their own, apart from its inputs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from gputasks.errors import ConfigError
from gputasks.layout import STATE_DIR
from gputasks.settings.faults import Faults
from gputasks.settings.paths import as_text, clean_path, contains, is_outside, items
from gputasks.settings.values import has_control

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gputasks.specs import Artifact


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


def artifact_list(faults: Faults, value: Any) -> tuple[Artifact, ...]:
    """`artifacts`: specs, paths, or tables with `name` and `path`."""
    from gputasks.specs import Artifact

    if isinstance(value, Artifact):
        faults.must("artifacts", "a list", value.path, hint="write `artifacts=[…]`")
        return ()
    found: list[Artifact] = []
    for item in items(faults, "artifacts", value):
        try:
            if isinstance(item, Artifact):
                found.append(item)
            elif isinstance(item, dict):
                deeper = faults.inside(f"an artifact of {faults.owner}", "artifacts")
                deeper.unknown(item, ("name", "path"))
                path: Any = item.get("path", "")
                found.append(Artifact(item.get("name", path), path))
            else:
                found.append(Artifact(item))
        except ConfigError as error:
            faults.take(error, "artifacts")
    _check_distinct(faults, found)
    return tuple(found)


def _check_distinct(faults: Faults, found: Sequence[Artifact]) -> None:
    for n, one in enumerate(found):
        for other in found[:n]:
            inner, outer = (one, other) if contains(other.path, one.path) else (other, one)
            if one.path == other.path:
                message = f"two artifacts of {faults.owner} have the path `{one.path}`"
            elif one.name == other.name:
                message = f"two artifacts of {faults.owner} have the name `{one.name}`"
            elif contains(outer.path, inner.path):
                message = (
                    f"artifact `{inner.path}` of {faults.owner} lies inside artifact `{outer.path}`"
                )
            else:
                continue
            faults.add(message, "artifacts")


def check_overlap(
    faults: Faults, artifacts: Sequence[Artifact], used: Sequence[tuple[str, str]]
) -> None:
    """Refuse artifacts and inputs that hold each other.

    Before a fresh run an artifact is moved away, with everything in it; and a run that writes into
    its own input is never up to date.

    Args:
        faults: where to note them.
        artifacts: outputs.
        used: what the run needs, as pairs of what it is ("script", "input", …) and its path.

    """
    for artifact in artifacts:
        for what, path in used:
            if contains(artifact.path, path):
                same = "is also" if artifact.path == path else "contains"
                faults.add(
                    f"artifact `{artifact.path}` of {faults.owner} {same} the {what} `{path}`,"
                    " and is moved away before a fresh run",
                    "artifacts",
                )
            elif what == "input" and contains(path, artifact.path):
                faults.add(
                    f"artifact `{artifact.path}` of {faults.owner} lies inside the input `{path}`,"
                    " which would change with every run",
                    "artifacts",
                )
