"""The frozen things that travel: what a user asked for, and what will be started.

No I/O and no defaults that look at the machine.  Everything here can be pickled, compared and
turned into JSON.  Values are checked by `settings` before they get here.
"""

from __future__ import annotations

import math
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Literal

from gputasks.frozen import Frozen, spec
from gputasks.units import parse_memory

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from gputasks.imagespec import Image
    from gputasks.inventory import Command, Gpu, Node, NodePlacement, NodeSpec, Placement

__all__ = [
    "Artifact",
    "Command",
    "Gpu",
    "GpuCount",
    "Image",
    "Node",
    "NodePlacement",
    "NodeSpec",
    "Outcome",
    "ParamsStyle",
    "Placement",
    "Resources",
    "Run",
]

GpuCount = int | tuple[int, ...] | Literal["auto"] | None
ParamsStyle = Literal["flags", "key=value", "none"]
Outcome = Literal["succeeded", "failed", "interrupted", "timed_out", "lost"]


@spec
class Artifact(Frozen):
    """A named output: a file or directory that a run must leave, which is a doit target.

    Args:
        name: unique within the task; one word without `/` when a path is given too.
        path: relative to the folder of dodo.py and below it; by default the name is the path.
        extra: refused.
        unknown: refused, with the nearest valid key.

    Raises:
        ConfigError: a path outside the project or in `.gputasks`, a name that is none.

    """

    name: str
    path: str = ""

    def __init__(
        self,
        name: str | PathLike[str] = "",
        path: str | PathLike[str] = "",
        *extra: Any,
        **unknown: Any,
    ) -> None:
        from gputasks.checks.artifacts import artifact_fields

        fields = artifact_fields(name, path, extra, unknown)
        object.__setattr__(self, "name", fields[0])
        object.__setattr__(self, "path", fields[1])

    def __str__(self) -> str:
        return self.path

    def __fspath__(self) -> str:
        return self.path


@spec
class Resources(Frozen):
    """What a task needs of a node.  Nothing asked is a state of its own: `empty`.

    Args:
        gpu_count: GPUs to lease before the start; 0 hides all GPUs; `"auto"` leases every free
            GPU of the node, or none where there is none; a list is tried in order, the first
            number that is free now is taken; None asks for nothing.
        cpu_count: CPUs (0.5 is half of one); also the default of OMP_NUM_THREADS, divided by the
            local workers.
        memory: host memory, `"16GB"` = 16 * 10^9 bytes, `"16GiB"` = 16 * 2^30 bytes.
        shm_size: size of /dev/shm, same units.
        pool_resources: named local pools, e.g. `{"licence": 1}`.
        use_busy_gpus: also lease GPUs on which a process of somebody else runs.
        extra: refused; everything is by keyword.
        unknown: refused, with the nearest valid key.

    Raises:
        ConfigError: a value of the wrong type, out of range, or an unknown key.

    """

    gpu_count: GpuCount = None
    cpu_count: float | None = None
    memory: str | None = None
    shm_size: str | None = None
    pool_resources: Mapping[str, int] = field(default_factory=dict)
    use_busy_gpus: bool = False

    def __init__(
        self,
        *extra: Any,
        gpu_count: GpuCount = None,
        cpu_count: float | None = None,
        memory: str | None = None,
        shm_size: str | None = None,
        pool_resources: Mapping[str, int] | None = None,
        use_busy_gpus: bool | None = None,
        **unknown: Any,
    ) -> None:
        from gputasks.checks.resources import resource_fields

        given = {
            "gpu_count": gpu_count,
            "cpu_count": cpu_count,
            "memory": memory,
            "shm_size": shm_size,
            "pool_resources": pool_resources,
            "use_busy_gpus": use_busy_gpus,
            **unknown,
        }
        for name, value in resource_fields(extra, given).items():
            object.__setattr__(self, name, value)

    @property
    def empty(self) -> bool:
        """True when nothing was asked: no lease, no limit."""
        return self == Resources()

    @property
    def memory_bytes(self) -> int | None:
        """Host memory in bytes."""
        return None if self.memory is None else parse_memory(self.memory)

    @property
    def shm_bytes(self) -> int | None:
        """Size of /dev/shm in bytes."""
        return None if self.shm_size is None else parse_memory(self.shm_size)

    def merged_requested_resources(self) -> dict[str, int]:
        """The demand as whole numbers by name, as ZenML 0.9x merged it.

        Starts from `pool_resources`; `gpu_count` sets `gpu` (0 removes the key); `cpu_count` sets
        `mcpu`, in thousandths of a CPU, rounded up; `memory` sets `memory_mb`, in 10^6 bytes,
        rounded up.  Typed fields win over keys of the same name.  Of a list of GPU counts the
        first one counts.
        """
        demand = dict(self.pool_resources)
        gpus = self.gpu_count[0] if isinstance(self.gpu_count, tuple) else self.gpu_count
        if gpus == 0:
            demand.pop("gpu", None)
        elif isinstance(gpus, int):
            demand["gpu"] = gpus
        if self.cpu_count is not None:
            # 0.1 + 0.2 is meant as 0.3: round to a millionth of a thousandth before rounding up.
            demand["mcpu"] = math.ceil(round(self.cpu_count * 1000, 6))
        if self.memory_bytes is not None:
            demand["memory_mb"] = -(-self.memory_bytes // 10**6)
        return demand


@spec
class Run(Frozen):
    """A named training or command, as the user defined it, complete and checked.

    Paths are relative to the folder of dodo.py.  Durations are seconds; None means no limit.
    `given` and `smoking` are what this invocation's command line said: options by param, `--smoke`.
    """

    kind: Literal["train", "command"]
    script: str = ""
    argv: tuple[str, ...] = ()
    shell: bool = False
    params: Mapping[str, Any] = field(default_factory=dict)
    params_style: ParamsStyle = "flags"
    args: tuple[str, ...] = ()
    file_dep: tuple[str, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    nproc_per_node: int = 1
    resources: Resources = field(default_factory=Resources)
    env: Mapping[str, str] = field(default_factory=dict)
    python: str = ""
    requirements: tuple[str, ...] = ()
    cwd: str = ""
    max_duration_s: float | None = None
    stop_grace_s: float = 30.0
    stall_timeout_s: float | None = 600.0
    retries: int = 0
    retry_on: tuple[str, ...] = ()
    retry_delay_s: float = 1.0
    cache: bool = True
    resume: bool = True
    resume_params: tuple[str, ...] = ()
    smoke: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    doc: str = ""
    given: Mapping[str, Any] = field(default_factory=dict)
    smoking: bool = False

    @property
    def has_environment(self) -> bool:
        """True when the task has a virtual environment of its own.

        `requirements` ask for one, and so does a version in place of a path: `python="3.11"`.
        """
        return bool(self.requirements) or self.python.replace(".", "").isdigit()

    def with_options(self, **changes: Any) -> Run:
        """A copy with some fields changed."""
        return replace(self, **changes)


_INVENTORY = ("Command", "Gpu", "Node", "NodePlacement", "NodeSpec", "Placement")


def __getattr__(name: str) -> Any:
    """The words of images, nodes and placements, loaded when they are needed (PEP 562).

    Making a frozen dataclass takes 0.4 ms, and a run that is up to date needs none of them.
    """
    if name == "Image":
        from gputasks.imagespec import Image

        globals()[name] = Image
        return Image
    if name not in _INVENTORY:
        raise AttributeError(f"module `gputasks.specs` has no `{name}`")
    from gputasks import inventory

    value = globals()[name] = getattr(inventory, name)
    return value
