"""What the driver's tool prints, and what the caller lets us see of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gputasks.nodes.nvidia import parse_list, parse_query, with_processes
from gputasks.nodes.visible import visible_gpus

QUERY = """\
0, GPU-8932f937-d72c-4106-c12f-20bd9faed9f6, NVIDIA A100-SXM4-40GB, 40960, 512, Disabled
1, GPU-1111, NVIDIA A100-SXM4-40GB, [N/A], [Not Supported], [N/A]
"""
LIST = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-8932f937-d72c-4106-c12f-20bd9faed9f6)
  MIG 3g.20gb     Device  0: (UUID: MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f)
  MIG 3g.20gb     Device  1: (UUID: MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-1111)
"""


def test_query():
    gpus, mig = parse_query(QUERY)
    assert [(g.index, g.visible_as, g.memory_mib, g.used_mib) for g in gpus] == [
        (0, "0", 40960, 512),
        (1, "1", 0, 0),
    ]
    assert not mig
    assert parse_query(QUERY.replace("Disabled", "Enabled"))[1]
    assert parse_query("No devices were found\n") == ((), False)


def test_a_split_gpu_counts_as_its_instances():
    known, _ = parse_query(QUERY)
    gpus = parse_list(LIST, known=known)
    assert [g.visible_as for g in gpus] == [
        "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f",
        "MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb",
        "1",
    ]


def test_processes():
    gpus, _ = parse_query(QUERY)
    busy = with_processes(gpus, "GPU-1111, 4242\nGPU-1111, 4243\n0, GPU-1111, NVIDIA, 5\n")
    assert [g.pids for g in busy] == [(), (4242, 4243)]
    assert [g.busy for g in busy] == [False, True]


def test_visible_follows_cuda():
    gpus, _ = parse_query(QUERY)
    seen = lambda text: [g.visible_as for g in visible_gpus(gpus, text)]  # noqa: E731
    assert seen(None) == ["0", "1"]
    assert seen("") == []
    assert seen("1,0") == ["1", "0"]
    assert seen("1,5,0") == ["1"]
    assert seen("0,0") == ["0"]
    assert seen("GPU-8932f937") == ["0"]
    assert seen("GPU-ffff,0") == []
    assert seen("-1") == []
    assert seen("MIG-GPU-8932f937/1/2") == ["MIG-GPU-8932f937/1/2"]


@given(st.text(max_size=40))
def test_visible_never_widens(text):
    gpus, _ = parse_query(QUERY)
    seen = visible_gpus(gpus, text)
    assert len(set(seen)) == len(seen)
    assert all(g in gpus or g.uuid.startswith("MIG-") for g in seen)


@given(st.text(max_size=200))
def test_parsers_take_anything(text):
    parse_query(text)
    parse_list(text)
    with_processes((), text)
