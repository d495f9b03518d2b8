"""The classic builder, by docker-py: what every engine has, podman too.

docker-py knows registries and their credentials, and decodes the stream; the context is our own
tar, in pieces.  No secrets, no mounts: those need buildx.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gputasks.errors import MachineError
from gputasks.images.progress import ClassicProgress, Failure
from gputasks.images.recipe import FILES
from gputasks.images.tar import tar_stream

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gputasks.images.builders import Order
    from gputasks.images.engine import Engine
    from gputasks.images.progress import Step

DOCKERFILE = ".gputasks.Dockerfile"
_HIDE = f"{DOCKERFILE}\n.dockerignore\n".encode()
"""The engine takes out of the context what this file names, after it has read it."""

_LATER = ("heredocs", "COPY --link", "ADD --link")
"""What the classic builder has learnt since 23."""


class Classic:
    """`POST /build`."""

    def __init__(self, engine: Engine, *, version: str = "", podman: bool = False) -> None:
        self.name = "podman" if podman else "classic"
        self._engine = engine
        self._podman = podman
        major = version.partition(".")[0]
        self._recent = major.isdecimal() and int(major) >= 23

    def lacks(self, needs: Mapping[str, int]) -> list[str]:
        """BuildKit's features; podman's builder has most of them."""
        if self._podman:
            return [n for n in needs if n in ("secrets", "COPY --link", "ADD --link")]
        return [
            "secret mounts" if n == "secrets" else n
            for n in needs
            if n != "# syntax=" and not (self._recent and n in _LATER)
        ]

    def build(
        self, order: Order, tell: Callable[[Step], None], log: Callable[[str], None]
    ) -> Failure | None:
        """Build; what went wrong, None when nothing did.

        Raises:
            MachineError: the engine went away, or docker-py is missing.

        """
        plan, image = order.plan, order.plan.image
        written = bool(image.dockerfile)
        extra = {**plan.files, DOCKERFILE: plan.text.encode(), ".dockerignore": _HIDE}
        progress = ClassicProgress(tell, log)
        import docker.errors
        import requests

        try:
            with client(self._engine) as api:
                stream = api.build(
                    fileobj=tar_stream(plan.context, extra, "" if written else f"{FILES}/"),
                    custom_context=True,
                    dockerfile=DOCKERFILE,
                    tag=plan.ref,
                    buildargs=dict(image.build_args) or None,
                    labels=dict(order.labels),
                    target=image.target or None,
                    platform=image.platform or None,
                    network_mode=image.network or None,
                    nocache=not image.cache,
                    rm=True,
                    forcerm=True,
                    decode=True,
                )
                for said in stream:
                    progress.take(said)
        except docker.errors.APIError as error:
            return progress.failure or Failure("", None, str(error.explanation or error), ())
        except (docker.errors.DockerException, requests.RequestException) as error:
            raise MachineError(
                f"the container engine went away during the build: {error}"
            ) from error
        return progress.failure


def client(engine: Engine) -> Any:
    """A docker-py client of this engine; it waits as long as a build takes.

    Raises:
        MachineError: docker-py cannot be used.

    """
    import docker
    import docker.errors

    try:
        return docker.APIClient(base_url=engine.host, version="auto", timeout=3600)
    except docker.errors.DockerException as error:
        raise MachineError(f"docker-py cannot use `{engine.host}`: {error}") from error


def pull(engine: Engine, ref: str, platform: str, log: Callable[[str], None]) -> str:
    """Fetch an image; why it could not be had, or nothing."""
    import docker.errors

    try:
        with client(engine) as api:
            for said in api.pull(ref, stream=True, decode=True, platform=platform or None):
                if "error" in said:
                    return str(said["error"])
                if not said.get("progressDetail"):
                    log(f"{said.get('id', '')} {said.get('status', '')}".strip() + "\n")
    except docker.errors.APIError as error:
        return str(error.explanation or error)
    return ""


def push(engine: Engine, ref: str, log: Callable[[str], None]) -> tuple[str, str]:
    """Send an image to its registry: its digest there, or why that failed."""
    import docker.errors

    digest = ""
    try:
        with client(engine) as api:
            # docker-py raises nothing for a refusal: it stands in the stream only.
            for said in api.push(ref, stream=True, decode=True):
                if "error" in said:
                    return "", str(said["error"])
                digest = (said.get("aux") or {}).get("Digest") or digest
                if not said.get("progressDetail"):
                    log(f"{said.get('id', '')} {said.get('status', '')}".strip() + "\n")
    except docker.errors.APIError as error:
        return "", str(error.explanation or error)
    return digest, ""
