"""Run + node + leased GPUs -> placement, ranks and environment.  No I/O, no clock."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gputasks.specs import NodePlacement, Placement

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gputasks.specs import Gpu, Node, Resources, Run

LEAKING = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "NODE_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
)
"""Variables of somebody else's launch that would change what a script thinks it is."""

LEAKING_PREFIXES = (
    "ACCELERATE_",
    "GPUTASKS_",
    "JSM_",
    "OMPI_",
    "PALS_",
    "PET_",
    "PMIX_",
    "PMI_",
    "ROLE_",
    "SLURM_",
    "TORCHELASTIC_",
)


def place(run: Run, node: Node, gpus: Sequence[Gpu]) -> Placement:
    """The workers of a run on one node: one per leased GPU, else `nproc_per_node`."""
    nproc = len(gpus) or run.nproc_per_node
    if run.kind == "command":
        nproc = 1
    return Placement((NodePlacement(node, tuple(gpus), nproc, 0),))


def backend(placement: Placement) -> str:
    """The collective library that fits: nccl where every worker has a GPU, gloo elsewhere."""
    return "nccl" if all(n.gpus for n in placement.nodes) else "gloo"


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """The caller's environment without what another launcher left in it."""
    return {
        k: v for k, v in environ.items() if k not in LEAKING and not k.startswith(LEAKING_PREFIXES)
    }


def gpu_env(resources: Resources, gpus: Sequence[Gpu], *, ask: bool) -> dict[str, str]:
    """What shows a process exactly its leased GPUs.

    Whole GPUs are named by index in PCI order: UUIDs are NVIDIA's advice, but vLLM #13815, OpenRLHF
    #402 and others parse the variable as numbers.  MIG instances can only be named by UUID.

    Args:
        resources: what the task asked for; nothing asked leaves the variable as it is.
        gpus: the lease.
        ask: the task is a training, which asks for GPUs even when it does not say so.

    """
    if gpus:
        return {
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "CUDA_VISIBLE_DEVICES": ",".join(g.visible_as for g in gpus),
        }
    if resources.gpu_count is None and not ask:
        return {}
    return {"CUDA_VISIBLE_DEVICES": "", "ACCELERATE_USE_CPU": "true"}


def thread_env(run: Run, share: NodePlacement) -> dict[str, str]:
    """OMP_NUM_THREADS = CPUs // local workers, so that workers do not fight over cores."""
    cpus = run.resources.cpu_count or share.node.cpu_count
    return {"OMP_NUM_THREADS": str(max(1, math.floor(cpus) // share.nproc))}


def elastic_env(
    placement: Placement, *, run_id: str, log_dir: str, grace_s: float
) -> dict[str, str]:
    """Torchrun's options as the variables it reads (`PET_<OPTION>`), one contract for all engines.

    On one node the agent makes the store itself on a free port (c10d, port 0): there is no moment
    between finding the port and using it, so two trainings cannot meet.  `max_restarts` is 0
    always: torch 2.13 reuses the old store in a restart, and new workers then read the addresses
    of dead ones (pytorch #135712, #167288); a retry is a new attempt of ours.
    """
    (share,) = placement.nodes
    return {
        "PET_NNODES": str(placement.nnodes),
        "PET_NODE_RANK": str(share.node_rank),
        "PET_NPROC_PER_NODE": str(share.nproc),
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": f"{share.node.address}:0",
        "PET_RDZV_ID": run_id,
        "PET_LOCAL_ADDR": share.node.address,
        "PET_MAX_RESTARTS": "0",
        "PET_LOG_DIR": log_dir,
        # The agent gives workers less time than the guard gives the agent.
        "PET_SHUTDOWN_TIMEOUT": str(max(1, math.floor(grace_s))),
    }


def shortfall(run: Run, node: Node) -> list[str]:
    """What the node has less of than the task asked for; it runs all the same, so it is said."""
    asked = run.resources
    said = []
    if asked.cpu_count is not None and asked.cpu_count > node.cpu_count:
        said.append(f"asked for {asked.cpu_count:g} CPUs, `{node.name}` has {node.cpu_count:g}")
    if asked.pool_resources:
        said.append("`pool_resources` are noted, and not enforced yet")
    memory, shm = asked.memory_bytes, asked.shm_bytes
    if memory is not None and memory > node.memory_bytes:
        said.append(f"asked for {asked.memory} of memory, `{node.name}` has less")
    if shm is not None and shm > node.shm_bytes:
        said.append(f"asked for {asked.shm_size} of shared memory, /dev/shm is smaller")
    return said
