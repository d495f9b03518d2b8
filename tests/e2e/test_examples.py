"""The examples, run as their READMEs say, in a copy of their folder."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
from pathlib import Path

import pytest
from conftest import Project, eventually

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
MADE = shutil.ignore_patterns("__pycache__", "data", "checkpoints", ".gputasks")


def events(project, task: str, kind: str) -> list[dict]:
    """All events of one kind, of all runs of a task."""
    files = sorted((project.root / ".gputasks/runs" / task).glob("[0-9a-z]*/events.jsonl"))
    lines = [line for f in files if not f.parent.is_symlink() for line in f.read_text().split("\n")]
    found = [json.loads(line) for line in lines[:-1] if line]
    return [event for event in found if event["kind"] == kind]


# -- ddp -------------------------------------------------------------------------------------------


@pytest.fixture
def ddp(project):
    """examples/ddp with its data made."""
    shutil.copytree(EXAMPLES / "mnist", project.root / "mnist", ignore=MADE)
    shutil.copytree(EXAMPLES / "ddp", project.root / "ddp", ignore=MADE)
    made = Project(project.root / "ddp", project.mark, started=project.started)
    done = made.doit("data", timeout=120)
    assert done.returncode == 0, done.stderr
    return made


@pytest.mark.torch
def test_interrupted_and_resumed_equals_uninterrupted_bit_for_bit(ddp):
    """Two runs of the same seed, one of them stopped by Ctrl-C in its second epoch."""
    import torch

    other = Project(ddp.root.parent / "other", ddp.mark, started=ddp.started)
    shutil.copytree(ddp.root, other.root, symlinks=True)

    straight = ddp.doit(timeout=120)
    assert straight.returncode == 0, straight.stderr
    assert straight.stderr.count("up to date") == 2
    assert "2 workers" in straight.stderr
    assert "val_acc 0.9" in straight.stderr

    process = other.start()
    second = eventually(
        lambda: [e for e in events(other, "train", "progress") if e["epoch"] >= 1], 90,
        what="the second epoch",
    )  # fmt: skip
    assert second[0]["epoch"] == 1
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(60) == 130, other.output(process)
    other.gone()
    assert not (other.root / "checkpoints").exists()

    resumed = other.doit(timeout=120)
    assert resumed.returncode == 0, resumed.stderr
    assert "resuming from `checkpoints/last.pt` of run " in resumed.stderr
    log = other.gputasks("logs", "train", "--rank", "0").stdout
    place = re.search(r"going on from \S*last\.pt: epoch (\d), batch (\d+)\n", log)
    assert place, log
    assert 1 <= int(place[1]) < 4
    assert "epoch 1/4" not in log

    load = {"map_location": "cpu", "weights_only": True}
    one, two = (torch.load(p.root / "checkpoints/last.pt", **load) for p in (ddp, other))
    assert one["model"].keys() == two["model"].keys()
    for name, weights in one["model"].items():
        assert torch.equal(weights, two["model"][name]), name
    for index, slots in one["optimizer"]["state"].items():
        for name, value in slots.items():
            assert torch.equal(value, two["optimizer"]["state"][index][name]), (index, name)
    assert (one["epoch"], two["epoch"]) == (4, 4)
    assert [p.name for p in (other.root / "checkpoints").iterdir()] == ["last.pt"]
    again = other.doit()
    assert again.stderr.count("up to date") == 3, again.stderr


@pytest.mark.torch
def test_ddp_script_needs_no_gputasks(ddp):
    """Plain `python train.py`: a group of one, no launcher, no gputasks to import."""
    (ddp.root / "gputasks.py").write_text("raise ImportError('not here')\n")
    done = ddp.run(sys.executable, "train.py", "--epochs", "1", "--out", "by-hand", timeout=120)
    assert done.returncode == 0, done.stderr
    assert "epoch 1/1: val_acc 0." in done.stdout
    assert (ddp.root / "by-hand/last.pt").exists()
