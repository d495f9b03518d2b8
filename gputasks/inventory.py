"""What there is to run on, and where a run goes: nodes, GPUs, placements, commands.

Names of `gputasks.specs`, which loads this when something is about to start.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class NodeSpec:
    """A node as `[nodes.NAME]` describes it; what it really has is a `Node`.

    Args:
        name: how runs and pools refer to it.
        ssh: destination for ssh: an alias, or `user@address:port`; empty for this machine.
        address: numeric address that the other nodes reach it by; by default the route tells.
        gpus: how many GPUs to expect, or which (indices, UUIDs); None takes what is found.
        python: interpreter there.
        labels: what runs may ask for.
        workdir: folder for runs there.
        price_per_gpu_hour: for budgets, in whatever currency.
        ifname: network interface towards the other nodes.
        host_key: its public host key, `ssh-ed25519 AAAA…`.

    """

    name: str
    ssh: str = ""
    address: str = ""
    gpus: int | tuple[int | str, ...] | None = None
    python: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    workdir: str = ""
    price_per_gpu_hour: float | None = None
    ifname: str = ""
    host_key: str = ""


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
    """What will be started on a node: data, made by pure functions, shown by the dry run.

    With a `container` all else is meant inside it: the order for `agent/container.py`.
    """

    node: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    container: Mapping[str, Any] | None = None
