"""The artifacts of a run: distinct, and apart from its inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gputasks.checks.paths import contains, items
from gputasks.errors import ConfigError
from gputasks.specs import Artifact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gputasks.checks.faults import Faults


def artifact_list(faults: Faults, value: Any) -> tuple[Artifact, ...]:
    """`artifacts`: specs, paths, or tables with `name` and `path`."""
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
