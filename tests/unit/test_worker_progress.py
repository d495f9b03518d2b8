"""Progress as workers tell it; Lightning itself is in tests/e2e/test_shim_torch.py."""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import subprocess
import sys
import textwrap
import time
from types import SimpleNamespace

import pytest

from gputasks.agent.payload.gputasks_worker import events, pace, watch
from gputasks.agent.payload.gputasks_worker import progress as worker
from gputasks.agent.payload.gputasks_worker.callback import lightning_callbacks
from gputasks.events import Follower, encode
from gputasks.launch.local import PAYLOAD
from gputasks.worker import progress


@pytest.fixture
def told(tmp_path, monkeypatch):
    """Events as the driver reads them; a fresh throttle."""
    path = tmp_path / "rank-1.jsonl"
    monkeypatch.setenv("GPUTASKS_EVENTS", str(path))
    monkeypatch.setenv("RANK", "1")
    fresh = worker._Progress()
    monkeypatch.setattr(worker, "_progress", fresh)
    follower = Follower(str(path))
    yield lambda: list(follower.events())
    fresh.flush()
    worker.atexit.unregister(fresh.flush)


class Tensor:
    """Like a torch scalar: it has a graph until it is detached."""

    def __init__(self, value, graph="graph"):
        self.value, self.graph = value, graph

    def detach(self):
        return Tensor(self.value, None)

    def __float__(self):
        if isinstance(self.value, list):
            raise RuntimeError("a Tensor with 2 elements is no Scalar")  # noqa: TRY004  as torch does
        return float(self.value)


def test_first_call_is_told_at_once_with_all_fields(told):
    progress(step=10, total=100, epoch=1, max_epochs=2, loss=Tensor(0.5), acc=1, note="text")
    (event,) = told()
    assert abs(event.pop("t") - time.time()) < 60
    assert event == {
        "kind": "progress", "rank": 1, "step": 10, "total": 100, "epoch": 1, "max_epochs": 2,
        "metrics": {"loss": 0.5, "acc": 1.0},
    }  # fmt: skip


def test_fast_calls_are_told_seldom_and_the_last_always(told):
    began = time.monotonic()
    for step in range(2000):
        progress(step=step)
    took = time.monotonic() - began
    found = told()
    assert found[0]["step"] == 0
    assert len(found) <= 2 + took / worker.INTERVAL_S
    worker._progress.flush()
    assert [*found, *told()][-1]["step"] == 1999
    worker._progress.flush()
    assert told() == []


def test_waiting_value_keeps_no_graph(told):
    progress(loss=1)
    progress(loss=Tensor(0.25))
    assert worker._progress._latest["metrics"]["loss"].graph is None


def test_odd_values(told):
    progress(
        step=Tensor(3), total="12", epoch=1.5, a=math.nan, b=-math.inf, c=Tensor([1, 2]), d=None
    )
    (event,) = told()
    assert (event["step"], event["total"], event["epoch"]) == (3, 12, 1.5)
    assert event["metrics"] == {"a": "nan", "b": "-inf"}


def test_does_nothing_outside_of_a_run(monkeypatch, tmp_path):
    monkeypatch.delenv("GPUTASKS_EVENTS", raising=False)
    monkeypatch.chdir(tmp_path)
    progress(step=1)
    assert lightning_callbacks() == []
    assert os.listdir(tmp_path) == []


def test_folder_that_is_gone_ends_no_training(monkeypatch, tmp_path, told):
    monkeypatch.setenv("GPUTASKS_EVENTS", str(tmp_path / "gone" / "x.jsonl"))
    progress(step=1)
    assert told() == []


def test_positional_values_are_refused():
    with pytest.raises(TypeError):
        progress(1)


def test_last_value_before_the_exit_where_gputasks_is_not_installed(tmp_path):
    script = textwrap.dedent("""
        import sys
        from gputasks_worker.progress import progress
        for step in range(1, 51):
            progress(step=step, total=50)
        heavy = {"torch", "numpy", "subprocess", "gputasks", "pytorch_lightning"} & set(sys.modules)
        assert not heavy, heavy
    """)
    path = tmp_path / "events.jsonl"
    env = {**os.environ, "PYTHONPATH": PAYLOAD, "GPUTASKS_EVENTS": str(path)}
    done = subprocess.run([sys.executable, "-c", script], env=env, cwd=tmp_path, timeout=30)
    assert done.returncode == 0
    assert list(Follower(str(path)).events())[-1]["step"] == 50


def test_lines_of_worker_and_driver_are_the_same(tmp_path, monkeypatch):
    fields = {"rank": 0, "metrics": {"a": math.nan, "ü✓": [1, 2.5]}, "text": "a\nb", "none": None}
    monkeypatch.setattr(time, "time", lambda: 1000.1234)
    path = tmp_path / "x"
    events.append(str(path), "note", **fields)
    assert path.read_bytes() == encode("note", **fields)


def test_pace_follows_the_last_moments(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(pace.time, "monotonic", lambda: now[0])
    one = pace.Pace()
    assert one.rate is None
    one.done(1000)  # resumed
    assert (one.rate, one.eta_s(2000)) == (None, None)
    now[0] = 10.0
    one.done(1100)
    assert (one.rate, one.eta_s(2000), one.eta_s(None)) == (10.0, 90.0, None)
    assert one.eta_s(1000) == 0.0
    now[0] = 11.0
    one.done(0)  # a second training begins
    assert one.rate is None
    for second in range(12, 200):
        now[0] = float(second)
        one.done(second * 2)
    assert one.rate == 2.0
    assert len(one._marks) < 40


def trainer(**changes):
    fields = {
        "num_training_batches": 10, "max_epochs": 3, "max_steps": -1, "accumulate_grad_batches": 1,
    }  # fmt: skip
    return SimpleNamespace(**{**fields, **changes})


@pytest.mark.parametrize(
    ("changes", "total"),
    [
        ({}, 30),
        ({"max_steps": 25}, 25),
        ({"max_steps": 99}, 30),
        ({"accumulate_grad_batches": 4}, 9),
        ({"max_epochs": -1}, None),
        ({"max_epochs": None, "max_steps": 7}, 7),
        ({"num_training_batches": math.inf, "max_steps": 7}, 7),
        ({"num_training_batches": math.inf}, None),
    ],
)
def test_total_steps(changes, total):
    assert watch._total(trainer(**changes)) == total


def test_batch_size_of_any_loader():
    plain = SimpleNamespace(batch_size=16)
    sampled = SimpleNamespace(batch_size=None, batch_sampler=SimpleNamespace(batch_size=8))
    assert watch._batch_size(watch._loader(plain)) == 16
    assert watch._batch_size(watch._loader([{"a": sampled}, plain])) == 8
    assert watch._batch_size(watch._loader(iter([]))) is None
    assert watch._batch_size(watch._loader(None)) is None


def test_hyperparameters_are_plain(monkeypatch):
    assert watch._scalars({"lr": 0.1, "net": object(), "name": None}) == {"lr": 0.1, "name": None}
    assert watch._scalars(None) == {}


def test_entry_points_are_found_on_pythonpath_alone(tmp_path):
    """Lightning asks importlib.metadata for these two groups, see its callback_connector.py."""
    (found,) = importlib.metadata.distributions(name="gputasks-worker", path=[PAYLOAD])
    groups = {e.group: e.value for e in found.entry_points}
    assert groups == {
        "pytorch_lightning.callbacks_factory": "gputasks_worker.callback:pytorch_lightning_callbacks",
        "lightning.pytorch.callbacks_factory": "gputasks_worker.callback:lightning_callbacks",
    }
    script = textwrap.dedent("""
        import importlib.metadata, json, sys
        groups = ("pytorch_lightning.callbacks_factory", "lightning.pytorch.callbacks_factory")
        found = [e for g in groups for e in importlib.metadata.entry_points(group=g)]
        print(json.dumps([[e.name, e.load()()] for e in found if e.name == "gputasks"]))
    """)
    env = {**os.environ, "PYTHONPATH": PAYLOAD}
    env.pop("GPUTASKS_EVENTS", None)
    done = subprocess.run(
        [sys.executable, "-c", script], env=env, cwd=tmp_path, capture_output=True, timeout=30
    )
    assert json.loads(done.stdout) == [["gputasks", []], ["gputasks", []]]


def test_gputasks_lightning_has_one_name():
    import gputasks.lightning as module

    assert not {"torch", "pytorch_lightning"} & set(sys.modules)
    with pytest.raises(AttributeError, match="no `ProgressCalback`"):
        _ = module.ProgressCalback
