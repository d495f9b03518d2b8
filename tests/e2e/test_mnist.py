"""The show-piece, for real: this repository's dodo.py with torch, Lightning and two workers."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from pathlib import Path

import pytest
from conftest import eventually

HERE = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.torch


@pytest.fixture
def show(project):
    """A copy of the repository's own project."""
    shutil.copy(HERE / "dodo.py", project.root)
    for name in ("examples", "images"):
        shutil.copytree(HERE / name, project.root / name)
    return project


def test_train_interrupt_resume_evaluate_and_nothing_to_do(show):
    dodo = (show.root / "dodo.py").read_text()
    declarations = dodo.partition("# -- for developers")[0]
    assert len(declarations.strip().splitlines()) <= 50
    (show.root / "dodo.py").write_text(dodo.replace('"lr": 1e-3}', '"lr": 1e-3, "batch_size": 16}'))
    prepared = show.doit("data", timeout=120)
    assert prepared.returncode == 0, prepared.stderr

    # Ctrl-C in the second epoch: Lightning exits with 0 after SIGTERM, which is no success.
    process = show.start("train", GPUTASKS_PROGRESS_S="0")
    eventually(lambda: "epoch 2/3" in show.output(process), 90, what="the second epoch")
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(60) == 130, show.output(process)
    show.gone()
    assert not (show.root / "checkpoints").exists()

    began = time.monotonic()
    resumed = show.doit("train", timeout=150)
    assert resumed.returncode == 0, resumed.stderr
    assert time.monotonic() - began < 120
    assert "resuming from `checkpoints/last.ckpt`" in resumed.stderr
    assert "best checkpoints/best.ckpt" in resumed.stderr
    hint = "global batch is 2 x 16 = 32 (per-worker batch 16, 2 workers)"
    assert resumed.stderr.count(hint) == 1
    assert "test_acc 0.9" in resumed.stderr
    files = sorted(p.name for p in (show.root / "checkpoints").glob("*.ckpt"))
    assert files == ["best.ckpt", "last.ckpt"]
    record = json.loads(show.gputasks("status", "--json", "train").stdout)[0]
    assert record["world_size"] == 2
    assert record["backend"] == "gloo"
    assert record["facts"]["global_batch_size"] == 32
    assert record["facts"]["device"] == "cpu"
    assert record["facts"]["persistent_workers"] is True
    assert record["metrics"]["test_acc"] >= 0.90
    assert record["packages"]["torch"].startswith("2.")

    evaluated = show.doit("evaluate", timeout=60)
    assert evaluated.returncode == 0, evaluated.stderr
    assert json.loads((show.root / "score.json").read_text())["accuracy"] >= 0.90
    again = show.doit("evaluate")
    assert again.returncode == 0
    assert again.stderr.count("up to date") == 4, again.stderr


def test_ranks_that_train_alone_are_refused(show):
    script = show.root / "examples/mnist/train.py"
    text = script.read_text()
    start, end = (
        text.index('        # "auto" would'),
        text.index("        max_epochs=args.max_epochs"),
    )
    script.write_text(text[:start] + text[end:])
    assert show.doit("data", timeout=120).returncode == 0
    result = show.doit("train", timeout=120)
    assert result.returncode == 1, result.stderr
    assert "LOCAL_WORLD_SIZE" in result.stderr
    assert not (show.root / "checkpoints").exists()


def test_sigterm_from_outside_is_no_success(show):
    # Lightning's ranks stop one by one, and may then wait for each other: that counts as a hang.
    dodo = (show.root / "dodo.py").read_text()
    (show.root / "dodo.py").write_text(
        dodo.replace("nproc_per_node=2,", 'nproc_per_node=2, stall_timeout="15s", stop_grace="5s",')
    )
    assert show.doit("data", timeout=120).returncode == 0
    process = show.start("train", GPUTASKS_PROGRESS_S="0")
    eventually(lambda: re.search(r"step [1-9]\d+/", show.output(process)), 90)
    ranks = [p for p, line in show.living().items() if "shim.py" in line and "torch.distributed.run" not in line and os.getsid(p) == p]  # fmt: skip
    assert len(ranks) == 2
    for pid in ranks:
        os.kill(pid, signal.SIGTERM)
    assert process.wait(90) == 1, show.output(process)
    assert show.doit("list", "-s").stdout.count("R train") == 1
