"""Who builds: one small protocol, two ways, and what neither may be asked to do in vain."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gputasks.errors import ConfigError, MachineError
from gputasks.images import names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from gputasks.images.engine import Engine
    from gputasks.images.inputs import Plan
    from gputasks.images.progress import Failure, Step


VARIABLE = "GPUTASKS_BUILDER"
"""`classic` or `buildx`; by default buildx where it is."""


class Order(NamedTuple):
    """What to build.

    Args:
        plan: the image and all that it is made of.
        folder: a folder of ours for what the builder needs besides.
        secrets: sources of secrets by id: a file's absolute path, or `env:NAME`.
        labels: labels of the image, ours included.

    """

    plan: Plan
    folder: str
    secrets: Mapping[str, str]
    labels: Mapping[str, str]


class Builder(Protocol):
    """Makes an image under its content tag, telling each step."""

    name: str

    def lacks(self, needs: Mapping[str, int]) -> list[str]:
        """Which of the needed features it does not have."""
        ...

    def build(
        self, order: Order, tell: Callable[[Step], None], log: Callable[[str], None]
    ) -> Failure | None:
        """Build; what went wrong, None when nothing did."""
        ...


def labels(plan: Plan) -> dict[str, str]:
    """Labels of an image: the user's, its digest and name."""
    return {
        **plan.image.labels,
        names.LABEL: plan.digest,
        names.LABEL_NAME: plan.image.name,
    }


def choose(engine: Engine) -> Builder:
    """The best builder that this engine and this machine have, or the one that was asked for.

    Raises:
        MachineError: the engine does not answer.
        ConfigError: `GPUTASKS_BUILDER` names none, or one that is not here.

    """
    from gputasks.images.buildx import Buildx, has_buildx
    from gputasks.images.classic import Classic

    version = engine.version()
    parts = version.get("Components") or [{}]
    if parts[0].get("Name") == "Podman Engine":
        return Classic(engine, podman=True)
    wanted = os.environ.get(VARIABLE, "")
    if wanted not in ("", "buildx", "classic"):
        raise ConfigError(f"`{VARIABLE}` must be `buildx` or `classic`, not `{wanted}`")
    if wanted != "classic" and has_buildx():
        return Buildx(engine)
    if wanted == "buildx":
        raise ConfigError(
            f"`{VARIABLE}` asks for buildx, which the docker command does not have",
            hint="`apt install docker-buildx` or `docker-buildx-plugin`",
        )
    return Classic(engine, version=str(version.get("Version", "")))


def refuse_needs(builder: Builder, plan: Plan) -> None:
    """Say now what would fail after ten minutes.

    Raises:
        MachineError: the builder lacks what the Dockerfile or the secrets need.

    """
    needs = dict(plan.needs)
    lacking = builder.lacks(needs)
    if plan.image.secrets:
        lacking += [n for n in builder.lacks({"secrets": 0}) if n not in lacking]
    if lacking:
        raise MachineError(
            f"the {builder.name} builder cannot build image `{plan.image.name}`",
            facts=list(_wanted(lacking, plan)),
            hint="install buildx: `apt install docker-buildx` or `docker-buildx-plugin`",
        )


def _wanted(lacking: list[str], plan: Plan) -> Iterator[str]:
    for need in lacking:
        line = plan.needs.get(need)
        where = f" ({plan.image.dockerfile}:{line})" if line else ""
        yield f"it has no {need}{where}"
