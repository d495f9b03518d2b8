"""`docker buildx build`: the one public client that has secrets, cache mounts and heredocs.

Run as a guarded process, so that Ctrl-C and the end of the driver end the build.  An image from a
Dockerfile gets its folder as the context, which buildx sends only in part; one that was described
gets our tar through a named pipe.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING

from gputasks.images.progress import Failure, RawJson
from gputasks.images.recipe import FILES
from gputasks.images.tar import tar_stream
from gputasks.layout import write_whole
from gputasks.proc import Guarded, Interrupted, Start, interrupts, run_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gputasks.images.builders import Order
    from gputasks.images.engine import Engine
    from gputasks.images.progress import Step

POLL_S = 0.1
GRACE_S = 10.0


def has_buildx() -> bool:
    """True when the docker command has the plugin."""
    return run_text(["docker", "buildx", "version"], timeout_s=20).returncode == 0


class Buildx:
    """buildx with the engine's own BuildKit."""

    name = "buildx"

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def lacks(self, needs: Mapping[str, int]) -> list[str]:  # noqa: ARG002  as the other builder
        """Nothing that is known beforehand: an old engine's own BuildKit says it itself."""
        return []

    def build(
        self, order: Order, tell: Callable[[Step], None], log: Callable[[str], None]
    ) -> Failure | None:
        """Build; what went wrong, None when nothing did.

        Raises:
            Interrupted: a signal ended it.

        """
        pipe = ""
        if not order.plan.image.dockerfile:
            pipe = os.path.join(order.folder, "context.tar")
            os.mkfifo(pipe)
        argv = arguments(order, pipe=bool(pipe))
        said = os.path.join(order.folder, "buildx.log")
        guard = Guarded.start(
            Start(
                argv=["sh", "-c", 'exec "$@" <"$0"', pipe, *argv] if pipe else argv,
                env={**os.environ, "DOCKER_HOST": self._engine.host, "BUILDX_BUILDER": "default"},
                cwd=os.getcwd(),
                output=said,
                mark=f"image-{order.plan.digest[:16]}-{os.getpid()}",
                grace_s=GRACE_S,
            )
        )
        sender = threading.Thread(target=_send, args=(order, pipe), daemon=True)
        if pipe:
            sender.start()
        progress = RawJson(tell, log)
        try:
            ended = _follow(guard, said, progress)
        finally:
            guard.stop()
            guard.wait(GRACE_S + 5)
            if pipe:
                _release(pipe)
        if interrupts.requested is not None:
            raise Interrupted(interrupts.requested)
        if ended == 0:
            return None
        lines = tuple(t for t in progress.text if t.strip())[-20:]
        return progress.failure or Failure("", ended, lines[-1] if lines else "", lines)


def arguments(order: Order, *, pipe: bool) -> list[str]:
    """The command line; pure but for the files that it names, which are written here.

    Args:
        order: what to build.
        pipe: the context comes as a tar on stdin.

    """
    plan, image = order.plan, order.plan.image
    argv = ["docker", "buildx", "build", "--progress=rawjson", "--provenance=false", "--load"]
    argv += ["--metadata-file", os.path.join(order.folder, "metadata.json"), "--tag", plan.ref]
    for name, value in sorted(order.labels.items()):
        argv += ["--label", f"{name}={value}"]
    for name, value in sorted(image.build_args.items()):
        argv += ["--build-arg", f"{name}={value}"]
    for name, source in sorted(order.secrets.items()):
        kind, _, rest = source.partition(":")
        argv += [
            "--secret",
            f"id={name},env={rest}" if kind == "env" else f"id={name},src={source}",
        ]
    argv += ["--target", image.target] if image.target else []
    argv += ["--platform", image.platform] if image.platform else []
    argv += ["--network", image.network] if image.network else []
    argv += [] if image.cache else ["--no-cache"]
    if pipe:
        return [*argv, "--file", "Dockerfile", "-"]
    # Beside a copy of the Dockerfile, the ignore file is ours, with the defaults in it.
    path = os.path.join(order.folder, "Dockerfile")
    write_whole(path, plan.text.encode())
    ignore = plan.context.ignore if plan.context is not None else ("*",)
    text = "".join(f"{line}\n" for line in ignore)
    write_whole(f"{path}.dockerignore", text.encode("utf-8", "surrogateescape"))
    return [*argv, "--file", path, image.build_context_root]


def _send(order: Order, pipe: str) -> None:
    """Write the tar; who does not read it to its end has failed for another reason."""
    plan = order.plan
    extra = {**plan.files, "Dockerfile": plan.text.encode()}
    with contextlib.suppress(OSError), open(pipe, "wb", buffering=0) as file:
        file.writelines(tar_stream(plan.context, extra, f"{FILES}/"))


def _release(pipe: str) -> None:
    """A writer that waits for a reader who never came waits no more."""
    with contextlib.suppress(OSError):
        os.close(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK))
    with contextlib.suppress(OSError):
        os.unlink(pipe)


def _follow(guard: Guarded, path: str, progress: RawJson) -> int:
    offset = 0
    while True:
        ended = guard.wait(POLL_S)
        with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
            file.seek(offset)
            data = file.read()
            offset += len(data)
            progress.feed(data, final=ended is not None)
        if ended is not None:
            return ended.returncode
        if interrupts.requested is not None:
            return 130
