"""A run inside a container of this machine's engine: the request that makes it, as plain data.

The container's process is the image's `sh` for some milliseconds: it reads the environment from its
stdin, so that no secret stands in a command line or in `docker inspect`, redirects its output,
and becomes the launcher or the program.  A child of it goes on reading stdin, whose end means that
`agent/container.py` is gone; it then ends the container.  Nothing is installed in the image.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shlex
import sys
from typing import TYPE_CHECKING, Any

from gputasks import plan, proc
from gputasks.frozen import Frozen, spec
from gputasks.launch.local import AGENT, argv_of, attempt_env
from gputasks.launch.mounts import Mount
from gputasks.specs import Command

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gputasks.launch.local import Attempt
    from gputasks.specs import Gpu, Placement, Run

CLIENT = os.path.join(AGENT, "container.py")
INSIDE = "/opt/gputasks/agent"
"""Where the container finds our files: the same in all, so that no command line depends on us."""
SHIM = f"{INSIDE}/shim.py"
PAYLOAD = f"{INSIDE}/payload"
SHM_MOST = 16 << 30
EXTRA_GRACE_S = 5.0
"""The guard's patience beyond the container's: time to kill it, to note how it ended, to remove."""
LABEL = "io.gputasks."

_END = "--gputasks: end of the environment--"
_STUB = """\
e=
while IFS= read -r l && [ "$l" != "$0" ]; do e="$e
$l"; done
eval "$e"
unset e l
exec 3<&0
( (while read -r l; do :; done <&3
kill -TERM $$; sleep "$1"; kill -KILL $$) & )
shift
exec "$@" </dev/null 3<&-
"""


@spec
class Engine(Frozen):
    """What the request has to know of the engine.

    Args:
        socket: path of its socket, or host and port.
        rootless: its root is the user who runs it.
        cdi: devices that it knows by name, `nvidia.com/gpu=GPU-…`.
        selinux: labels files, and would keep the container away from the project's.
        podman: ignores requests for GPUs that are not by such a name.
        cpus: how many it may give away.
        memory_bytes: of the machine.

    """

    socket: str | tuple[str, int]
    rootless: bool = False
    cdi: frozenset[str] = frozenset()
    selinux: bool = False
    podman: bool = False
    cpus: float = 0.0
    memory_bytes: int = 0


@spec
class Owner(Frozen):
    """Who runs it, and as whom files are written."""

    uid: int
    gid: int
    groups: Sequence[int]
    name: str
    host: str


def container_command(
    run: Run,
    placement: Placement,
    attempt: Attempt,
    *,
    root: str,
    task: str,
    python: str,
    env: Mapping[str, str],
    image: str,
    mounts: Sequence[Mount],
    engine: Engine,
    owner: Owner,
    home: str,
) -> Command:
    """The process to start in a container.

    Args:
        run: what the user asked for.
        placement: one node.
        attempt: folders and the checkpoint to resume from.
        root: absolute folder of dodo.py, which has the same path inside.
        task: its name, for labels.
        python: the interpreter, by its name or path in the image.
        env: the task's own variables, secrets resolved.
        image: reference of an image that the engine has.
        mounts: of the project.
        engine: what there is.
        owner: the caller.
        home: writable folder that survives runs.

    """
    (share,) = placement.nodes
    argv = argv_of(run, attempt, root, python, shim=SHIM)
    cwd = os.path.join(root, run.cwd) if run.cwd else root
    ours = [
        Mount(os.path.realpath(AGENT), INSIDE),
        Mount(attempt.folder, attempt.folder, read_only=False),
        Mount(home, home, read_only=False),
    ]
    every = [*mounts, *ours]
    grace = min(run.stop_grace_s, 30.0)
    create = {
        "Image": image,
        "Entrypoint": ["sh", "-c", _STUB, _END, str(math.ceil(grace))],
        "Cmd": argv,
        "User": "0:0" if engine.rootless else f"{owner.uid}:{owner.gid}",
        "WorkingDir": cwd,
        "OpenStdin": True,
        "StdinOnce": True,
        "AttachStdin": True,
        "StopSignal": "SIGTERM",
        "Labels": {
            LABEL + "run": attempt.run_id,
            LABEL + "task": task,
            LABEL + "attempt": str(attempt.number),
            LABEL + "project": root,
            LABEL + "host": owner.host,
            LABEL + "log": attempt.output,
        },
        "HostConfig": {
            "Init": True,
            "NetworkMode": "host",
            # Where the engine maps users to others, files would belong to nobody.
            "UsernsMode": "" if engine.rootless else "host",
            "SecurityOpt": ["label=disable"] if engine.selinux else [],
            "Mounts": [
                {"Type": "bind", "Source": m.source, "Target": m.target, "ReadOnly": m.read_only}
                for m in every
            ],
            "GroupAdd": [] if engine.rootless else [str(g) for g in owner.groups],
            "LogConfig": {"Type": "json-file", "Config": {"max-size": "1m"}},
            **_limits(run, engine),
            **_devices(share.gpus, engine),
        },
    }
    full = _environment(run, placement, attempt, env)
    defaults = {**plan.thread_env(run, share), **_defaults(home)}
    container = {
        "socket": engine.socket if isinstance(engine.socket, str) else list(engine.socket),
        "name": container_name(attempt),
        "create": create,
        "optional": [m.source for m in every if m.optional],
        "output": attempt.output,
        "status": attempt.container,
        "grace_s": run.stop_grace_s,
        "script": _script(full, defaults, owner, home, attempt),
    }
    return Command(share.node.name, tuple(argv), full, cwd, container)


def container_name(attempt: Attempt) -> str:
    """One per attempt on the whole machine, and told apart at a glance."""
    place = hashlib.sha256(os.fsencode(attempt.folder)).hexdigest()[:8]
    return f"gputasks-{attempt.run_id}-{attempt.number}-{place}"


def started(command: Command, *, hidden: bool = False) -> dict[str, Any]:
    """Program, stdin and environment of the process that holds a command's container.

    With `hidden` output the container prints into pipes of this side, see `agent/pump.py`.
    """
    kept = ("PATH", "LANG", "LC_ALL", "TZ")
    return {
        "argv": (sys.executable, "-I", "-S", CLIENT),
        "env": {k: os.environ[k] for k in kept if k in os.environ},
        "cwd": "/",
        "stdin": json.dumps(
            {**(command.container or {}), "hidden": hidden, "driver": proc.driver()}
        ),
    }


def _limits(run: Run, engine: Engine) -> dict[str, int]:
    """Memory without swap, CPUs, and room in /dev/shm, of which the engine's own 64 MB is none."""
    asked = run.resources
    limits: dict[str, int] = {}
    memory = asked.memory_bytes
    if memory is not None:
        limits["Memory"] = limits["MemorySwap"] = memory
    if asked.cpu_count is not None and (not engine.cpus or asked.cpu_count < engine.cpus):
        limits["NanoCpus"] = round(asked.cpu_count * 10**9)
    shm = asked.shm_bytes
    if shm is None and run.kind == "train":
        shm = min(engine.memory_bytes // 2 or SHM_MOST, SHM_MOST)
    if shm is not None:
        limits["ShmSize"] = shm
    return limits


def _devices(gpus: Sequence[Gpu], engine: Engine) -> dict[str, Any]:
    """Exactly the leased GPUs: by their names in CDI where those are known, else by UUID."""
    if not gpus:
        return {}
    named = [_cdi_name(g, engine) for g in gpus]
    if all(named) or engine.podman:
        names = [n or f"nvidia.com/gpu={g.uuid}" for n, g in zip(named, gpus, strict=True)]
        return {"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": names}]}
    request = {"Driver": "", "DeviceIDs": [g.uuid for g in gpus], "Capabilities": [["gpu"]]}
    return {"DeviceRequests": [request]}


def _cdi_name(gpu: Gpu, engine: Engine) -> str:
    for name in (gpu.uuid, str(gpu.index)):
        if f"nvidia.com/gpu={name}" in engine.cdi:
            return f"nvidia.com/gpu={name}"
    return ""


def _environment(
    run: Run, placement: Placement, attempt: Attempt, env: Mapping[str, str]
) -> dict[str, str]:
    """Variables of the program, over those of the image; nothing comes from the caller's shell.

    Inside, GPUs are numbered from 0 whatever they are called outside, so CUDA_VISIBLE_DEVICES is
    only set to hide all.
    """
    (share,) = placement.nodes
    full = {"PYTHONUNBUFFERED": "1"}
    shown = plan.gpu_env(run.resources, share.gpus, ask=run.kind == "train")
    if share.gpus:
        shown.pop("CUDA_VISIBLE_DEVICES")
    full.update(shown)
    full.update(env)
    full.update(attempt_env(run, placement, attempt))
    return full


def _defaults(home: str) -> dict[str, str]:
    """Caches, for images that say nothing of them: in a folder that the next run finds again."""
    cache = os.path.join(home, ".cache")
    return {
        "XDG_CACHE_HOME": cache,
        "HF_HOME": os.path.join(cache, "huggingface"),
        "TORCHINDUCTOR_CACHE_DIR": os.path.join(cache, "torchinductor"),
        "TRITON_CACHE_DIR": os.path.join(cache, "triton"),
    }


def _script(
    env: Mapping[str, str],
    defaults: Mapping[str, str],
    owner: Owner,
    home: str,
    attempt: Attempt,
) -> str:
    """Lines of shell that set up the environment, and the line that ends them."""
    fixed = {"HOME": home, "USER": owner.name, "LOGNAME": owner.name, **env,
             "GPUTASKS_RUN": attempt.mark}  # fmt: skip
    lines = [f"export {k}={shlex.quote(v)}" for k, v in fixed.items()]
    lines += [
        f'[ -n "${{{k}:-}}" ] || export {k}={shlex.quote(v)}'
        for k, v in defaults.items()
        if k not in env
    ]
    lines.append(f'export PYTHONPATH={PAYLOAD}"${{PYTHONPATH:+:$PYTHONPATH}}"')
    return "\n".join([*lines, _END, ""])
