"""Placement, ranks, environment: pure functions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gputasks import plan
from gputasks.specs import Gpu, Node, Resources, Run

gpus = st.integers(0, 16).map(
    lambda n: tuple(Gpu(i, f"GPU-{i}", visible_as=str(i)) for i in range(n))
)
NODE = Node("hal", cpu_count=8.0, memory_bytes=16 * 10**9, shm_bytes=10**9)


@given(gpus, st.integers(1, 64))
def test_one_worker_per_leased_gpu_else_as_asked(leased, nproc):
    placed = plan.place(Run(kind="train", nproc_per_node=nproc), NODE, leased)
    assert placed.world_size == (len(leased) or nproc)
    assert plan.backend(placed) == ("nccl" if leased else "gloo")
    env = plan.gpu_env(Resources(gpu_count="auto"), leased, ask=True)
    assert env["CUDA_VISIBLE_DEVICES"] == ",".join(str(i) for i in range(len(leased)))
    threads = int(plan.thread_env(Run(kind="train"), placed.nodes[0])["OMP_NUM_THREADS"])
    assert threads >= 1
    assert threads * placed.world_size <= max(NODE.cpu_count, placed.world_size)


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_inherited_drops_launchers_and_keeps_the_rest(environ):
    dirty = {**environ, "RANK": "3", "SLURM_PROCID": "1", "PET_NNODES": "9", "PATH": "/bin"}
    clean = plan.inherited(dirty)
    assert clean["PATH"] == "/bin"
    assert not set(clean) & {"RANK", "SLURM_PROCID", "PET_NNODES"}
    assert all(clean[k] == v for k, v in environ.items() if k in clean)


def test_shortfall_is_said():
    run = Run(kind="train", resources=Resources(cpu_count=64, memory="1TB", shm_size="1TiB"))
    assert len(plan.shortfall(run, NODE)) == 3
    assert plan.shortfall(Run(kind="train"), NODE) == []


def test_elastic_options():
    placed = plan.place(Run(kind="train", nproc_per_node=2), NODE, ())
    env = plan.elastic_env(placed, run_id="k4f2-0", log_dir="/x", grace_s=30.0)
    assert env["PET_NPROC_PER_NODE"] == "2"
    assert env["PET_RDZV_ENDPOINT"] == "127.0.0.1:0"
    assert env["PET_MAX_RESTARTS"] == "0"
