"""The frozen things that travel: what a user asked for, and what will be started.

No I/O and no defaults that look at the machine.  Everything here can be pickled, compared and
turned into JSON.  Values are checked by `settings` before they get here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from gputasks.units import parse_memory

if TYPE_CHECKING:
    from collections.abc import Mapping

GpuCount = int | Literal["auto"] | None
ParamsStyle = Literal["flags", "key=value", "none"]
Outcome = Literal["succeeded", "failed", "interrupted", "timed_out", "lost"]


@dataclass(frozen=True)
class Artifact:
    """A named output: a file or directory that a run must leave, which is a doit target.

    Args:
        name: unique within the task.
        path: relative to the folder of dodo.py; a file or a directory.
    """

    name: str
    path: str = ""

    def __post_init__(self) -> None:
        from gputasks.settings.values import artifact_fields

        name, path = artifact_fields(self.name, self.path)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "path", path)

    def __str__(self) -> str:
        return self.path

    def __fspath__(self) -> str:
        return self.path


@dataclass(frozen=True)
class Resources:
    """What a task needs of a node.  Nothing asked is a state of its own: `empty`.

    Args:
        gpu_count: GPUs to lease before the start; 0 hides all GPUs; `"auto"` leases every free
            GPU of the node, or none where there is none; None asks for nothing.
        cpu_count: CPUs (0.5 is half of one); also the default of OMP_NUM_THREADS, divided by the
            local workers.
        memory: host memory, `"16GB"` = 16 * 10^9 bytes, `"16GiB"` = 16 * 2^30 bytes.
        shm_size: size of /dev/shm, same units.
        pool_resources: named local pools, e.g. `{"licence": 1}`.
        use_busy_gpus: also lease GPUs on which a process of somebody else runs.

    Raises:
        ConfigError: a value of the wrong type, out of range, or an unknown key.
    """

    gpu_count: GpuCount = None
    cpu_count: float | None = None
    memory: str | None = None
    shm_size: str | None = None
    pool_resources: Mapping[str, int] = field(default_factory=dict)
    use_busy_gpus: bool = False

    def __init__(self, *args: Any, **keys: Any) -> None:
        from gputasks.settings.values import resource_fields

        for name, value in resource_fields(args, keys).items():
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
        rounded up.  Typed fields win over keys of the same name.
        """
        demand = dict(self.pool_resources)
        if self.gpu_count == 0:
            demand.pop("gpu", None)
        elif isinstance(self.gpu_count, int):
            demand["gpu"] = self.gpu_count
        if self.cpu_count is not None:
            # 0.1 + 0.2 is meant as 0.3: round to a millionth of a thousandth before rounding up.
            demand["mcpu"] = math.ceil(round(self.cpu_count * 1000, 6))
        if self.memory_bytes is not None:
            demand["memory_mb"] = -(-self.memory_bytes // 10**6)
        return demand


@dataclass(frozen=True)
class Image:
    """A container image by name.  Building and running images is not there yet."""

    name: str
    parent_image: str = ""
    dockerfile: str = ""


@dataclass(frozen=True)
class Run:
    """A named training or command, as the user defined it, complete and checked.

    Paths are relative to the folder of dodo.py.  Durations are seconds; None means no limit.
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
    cwd: str = ""
    max_duration_s: float | None = None
    stop_grace_s: float = 30.0
    stall_timeout_s: float | None = 600.0
    retries: int = 0
    cache: bool = True
    resume: bool = True
    name: str = ""
    doc: str = ""

    def with_options(self, **changes: Any) -> Run:
        """A copy with some fields changed."""
        return replace(self, **changes)


@dataclass(frozen=True)
class Gpu:
    """One leasable device of a node.

    Args:
        index: the number that CUDA_VISIBLE_DEVICES takes under CUDA_DEVICE_ORDER=PCI_BUS_ID.
        uuid: `GPU-…` or `MIG-…`.
        name: product name.
        memory_mib: total memory, MiB.
        used_mib: memory in use when it was looked at, MiB.
        pids: compute processes seen on it.
        visible_as: what to put into CUDA_VISIBLE_DEVICES (an index, or a MIG UUID unchanged).
    """

    index: int
    uuid: str
    name: str = ""
    memory_mib: int = 0
    used_mib: int = 0
    pids: tuple[int, ...] = ()
    visible_as: str = ""

    @property
    def busy(self) -> bool:
        """True when somebody's process computes on it."""
        return bool(self.pids)


@dataclass(frozen=True)
class Node:
    """What a machine has that one agent can use."""

    name: str
    address: str = "127.0.0.1"
    cpu_count: float = 1.0
    memory_bytes: int = 0
    shm_bytes: int = 0
    gpus: tuple[Gpu, ...] = ()
    gpu_source: str = ""


@dataclass(frozen=True)
class NodePlacement:
    """The share of one node: its leased GPUs and its workers."""

    node: Node
    gpus: tuple[Gpu, ...]
    nproc: int
    node_rank: int


@dataclass(frozen=True)
class Placement:
    """node -> GPUs -> ranks."""

    nodes: tuple[NodePlacement, ...]

    @property
    def world_size(self) -> int:
        """Workers of all nodes."""
        return sum(n.nproc for n in self.nodes)

    @property
    def nnodes(self) -> int:
        """Number of nodes."""
        return len(self.nodes)


@dataclass(frozen=True)
class Command:
    """What will be started on a node: data, made by pure functions, shown by the dry run."""

    node: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
