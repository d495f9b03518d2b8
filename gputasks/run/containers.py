"""The container engine of this machine, as the conductor needs it: is it there, what was left."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from gputasks.errors import GputasksError, MachineError
from gputasks.frozen import Frozen, spec
from gputasks.images import cuda
from gputasks.images import receipt as image_receipts
from gputasks.images.engine import Engine, EngineAnswerError
from gputasks.images.used import image_name, image_reference, is_built
from gputasks.launch import docker
from gputasks.launch.local import PYTHON_INSIDE, argv_of
from gputasks.launch.mounts import project_mounts
from gputasks.leases.flock import boot_id
from gputasks.proc import run_text
from gputasks.specs import Image

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gputasks.launch.local import Attempt
    from gputasks.layout import Layout
    from gputasks.receipts.inputs import Inputs
    from gputasks.specs import Command, Gpu, Node, Placement, Run

GPU_QUERY_S = 60.0
_LOCAL = ("127.0.0.1", "localhost", "::1")


@spec
class Box(Frozen):
    """An engine that answered, and the image that it has."""

    engine: Engine
    image: str


def box_for(run: Run, layout: Layout) -> Box:
    """The engine and the image of a run.

    Raises:
        MachineError: no engine answers, it is another machine's, or it has no such image.
        ConfigError: the image has to be built first.

    """
    assert run.image is not None  # noqa: S101  the caller looked
    reference = image_reference(run.image, layout)
    engine = Engine()
    address = engine.address
    if not address.path and (address.tls or address.name not in _LOCAL):
        raise MachineError(
            f"the container engine at `{engine.host}` is another machine's",
            facts=["a run mounts the project, so its engine must be this machine's"],
            hint="`unset DOCKER_HOST`, or the socket of an engine here",
        )
    engine.ping()
    if engine.inspect_image(reference) is None:
        name = image_name(run.image)
        told = f"`{name}`" if name == reference else f"`{name}` (`{reference}`)"
        raise MachineError(
            f"image {told} is not on the container engine",
            facts=[f"engine: {engine.host}"],
            hint="the task with `gt.build` of it builds it"
            if is_built(run.image)
            else f"`docker pull {reference}` fetches it",
        )
    return Box(engine, reference)


def check_gpus(run: Run, layout: Layout, gpus: Sequence[Gpu]) -> None:
    """The leased GPUs can run what is in the image, as far as its build told of torch and CUDA.

    Raises:
        MachineError: the driver is too old for the image's CUDA, or its torch has no kernels for
            these GPUs.

    """
    if not gpus or not isinstance(run.image, Image):
        return
    receipt = image_receipts.read(layout, run.image.name)
    if receipt is None or not receipt.facts.get("torch"):
        return
    asked = ["nvidia-smi", f"--query-gpu={cuda.QUERY}", "--format=csv,noheader"]
    answer = run_text(asked, timeout_s=GPU_QUERY_S)
    leased = {g.index for g in gpus}
    there = [g for g in cuda.parse_gpus(answer.out) if g.index in leased]
    said = cuda.cuda_faults(receipt.facts, there, f"image `{run.image.name}`")
    if said:
        raise MachineError(said[0], facts=said[1:])


def _facts(engine: Engine, node: Node, *, gpus: bool) -> docker.Engine:
    """What the request depends on.

    An engine whose socket is root's is no rootless one, and has what this machine has; the long
    answer of `/info` is only waited for when that is not enough.
    """
    address = engine.address
    socket = address.path or (address.name, address.port)
    selinux = os.path.exists("/sys/fs/selinux/enforce")
    if address.path and not gpus and os.stat(address.path).st_uid == 0:
        return docker.Engine(
            socket=socket,
            selinux=selinux,
            cpus=node.cpu_count,
            memory_bytes=node.memory_bytes,
        )
    info = engine.info()
    devices = info.get("DiscoveredDevices") or []
    return docker.Engine(
        socket=socket,
        rootless="name=rootless" in (info.get("SecurityOptions") or []),
        cdi=frozenset(str(d.get("ID")) for d in devices if d.get("Source") == "cdi"),
        selinux=selinux,
        podman=gpus and engine.is_podman(),
        cpus=float(info.get("NCPU") or 0),
        memory_bytes=int(info.get("MemTotal") or 0),
    )


def would_run(
    run: Run, attempt: Attempt, layout: Layout, *, python: str
) -> tuple[str, list[str], list[str]]:
    """For the dry run: the image, the command line inside, and what stands in the way."""
    assert run.image is not None  # noqa: S101  the caller looked
    name, said = image_name(run.image), []
    try:
        name = box_for(run, layout).image
    except GputasksError as error:
        said.append(error.message)
    root = os.path.abspath(layout.root)
    argv = argv_of(run, attempt, root, python or PYTHON_INSIDE, shim=docker.SHIM)
    return name, argv, said


def command_in(
    box: Box,
    run: Run,
    placement: Placement,
    attempt: Attempt,
    *,
    layout: Layout,
    task: str,
    inputs: Inputs,
    python: str,
    env: Mapping[str, str],
) -> Command:
    """The command of an attempt in its container, with the folders that it will write made.

    Raises:
        OSError: a folder cannot be made.

    """
    (share,) = placement.nodes
    root = os.path.abspath(layout.root)
    home = os.path.join(root, layout.home)
    os.makedirs(os.path.join(home, ".cache"), exist_ok=True)
    reads = [*run.file_dep, *inputs["code"], run.cwd]
    return docker.container_command(
        run,
        placement,
        attempt,
        root=root,
        task=task,
        python=python,
        env=env,
        image=box.image,
        mounts=project_mounts(run, root, [p for p in reads if p]),
        engine=_facts(box.engine, share.node, gpus=bool(share.gpus)),
        owner=_owner(),
        home=home,
    )


def _owner() -> docker.Owner:
    uid, gid = os.getuid(), os.getgid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = f"uid-{uid}"
    return docker.Owner(
        uid=uid, gid=gid, groups=os.getgroups(), name=name, host=os.uname().nodename
    )


def remove(box: Box, run_id: str, layout: Layout) -> int:
    """Remove what is left of a run's containers; how many there were."""
    labels = {"run": run_id, "project": os.path.abspath(layout.root)}
    return sum(_removed(box.engine, c) for c in _labelled(box.engine, labels))


def reap(box: Box, layout: Layout, note: Callable[[str], None]) -> None:
    """Remove containers of this project whose holder is gone: it was killed, and so its driver."""
    labels = {"project": os.path.abspath(layout.root), "host": os.uname().nodename}
    for each in _labelled(box.engine, labels):
        said = each.get("Labels") or {}
        if _alive(said.get(docker.LABEL + "owner", "")):
            continue
        if _removed(box.engine, each):
            task, run = said.get(docker.LABEL + "task"), said.get(docker.LABEL + "run")
            note(f"the container of run {run} (task `{task}`) had been left; it was removed")


def _labelled(engine: Engine, labels: Mapping[str, str]) -> list[dict[str, Any]]:
    wanted = {"label": [f"{docker.LABEL}{k}={v}" for k, v in labels.items()]}
    with contextlib.suppress(MachineError):
        found = engine.get(f"/containers/json?all=1&filters={quote(json.dumps(wanted))}")
        if isinstance(found, list):
            return found
    return []


def _removed(engine: Engine, container: Mapping[str, Any]) -> bool:
    try:
        engine.delete(f"/containers/{container['Id']}?force=1&v=1")
    except EngineAnswerError as error:
        return error.status == 409  # somebody else is removing it
    except MachineError:
        return False
    return True


def _alive(owner: str) -> bool:
    """True when the holder of a container still lives: boot id, pid and start time agree."""
    boot, _, rest = owner.partition(":")
    pid, _, start = rest.partition(":")
    if boot != boot_id() or not pid.isdigit():
        return False
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return False
    return fields[0] not in "ZX" and fields[19] == start
