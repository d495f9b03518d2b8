"""Numbers and chores for training scripts."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from types import ModuleType, SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gputasks as gt
from gputasks.errors import ConfigError


@pytest.mark.parametrize(
    ("gpus", "cpus", "workers"),
    [
        (1, 16, 4),  # 2 to 4 for each GPU, however many cores there are
        (8, 96, 4),
        (8, 16, 2),
        (4, 6, 1),
        (8, 4, 0),  # more processes than cores
        (1, 1, 0),
        (0, 1, 0),
        (0, 8, 4),  # one process on the CPU
        (2, 2, 1),
    ],
)
def test_workers(gpus, cpus, workers):
    assert gt.suggest_num_workers(gpus, cpus) == workers


@given(st.integers(0, 64), st.integers(1, 512))
def test_never_more_than_cores(gpus, cpus):
    workers = gt.suggest_num_workers(gpus, cpus=cpus)
    assert 0 <= workers <= 4
    assert workers * max(1, gpus) <= cpus


def test_cores_are_those_that_may_be_used():
    cores = len(os.sched_getaffinity(0))
    assert gt.suggest_num_workers(1) == gt.suggest_num_workers(1, cores)
    pinned = "import os, gputasks as gt; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})"
    show = [sys.executable, "-c", pinned + "; print(gt.suggest_num_workers(1))"]
    assert subprocess.run(show, capture_output=True, text=True, timeout=30).stdout == "0\n"


@pytest.mark.parametrize("bad", [{"gpus": -1}, {"gpus": True}, {"gpus": "2"}, {"gpus": 1.5}])
def test_no_count(bad):
    with pytest.raises(ConfigError, match="`gpus` must be a whole number from 0 on"):
        gt.suggest_num_workers(**bad)
    with pytest.raises(ConfigError, match="`cpus` must be a whole number from 1 on, not 0"):
        gt.suggest_num_workers(1, cpus=0)


class Cycle:
    """Freed by the garbage collector only."""

    def __init__(self):
        self.me = self


@pytest.fixture
def torch_with_cuda(monkeypatch):
    """What `cleanup_memory` sees of a torch; there is no GPU here."""
    torch = ModuleType("torch")
    torch.emptied = 0
    torch.used = True

    def empty_cache():
        torch.emptied += 1

    torch.cuda = SimpleNamespace(is_initialized=lambda: torch.used, empty_cache=empty_cache)
    monkeypatch.setitem(sys.modules, "torch", torch)
    return torch


def test_memory_is_given_back(torch_with_cuda):
    alive = weakref.ref(Cycle())
    gt.cleanup_memory()
    assert alive() is None
    assert torch_with_cuda.emptied == 1


def test_unused_gpu_is_left_alone(torch_with_cuda):
    gc.disable()
    try:
        alive = weakref.ref(Cycle())
        torch_with_cuda.used = False
        gt.cleanup_memory()
        assert alive() is not None
    finally:
        gc.enable()
    assert torch_with_cuda.emptied == 0


def test_torch_is_not_imported():
    script = "import sys, gputasks as gt; gt.cleanup_memory(); gt.suggest_num_workers(2)"
    script += "; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], timeout=30).returncode == 0
