"""The examples, run as their READMEs say, in a copy of their folder."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Project, eventually

from gputasks.events import Follower

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
MADE = shutil.ignore_patterns("__pycache__", "data", "checkpoints", ".gputasks")


def events(project, task: str, kind: str) -> list[dict]:
    """All events of one kind, of all runs of a task."""
    runs = (project.root / ".gputasks/runs" / task).glob("*/events.jsonl")
    files = [str(path) for path in runs if path.parent.name != "latest"]
    return [e for path in files for e in Follower(path).events() if e["kind"] == kind]


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
def test_ddp_script_alone_needs_no_gputasks_and_obeys_sigterm(ddp):
    """Plain `python train.py`: a group of one, no launcher, no gputasks to import."""
    ddp.write("gputasks.py", "raise ImportError('not here')\n")
    with open(ddp.root / "printed", "wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-u", "train.py", "--epochs", "1000", "--out", "by-hand"],
            cwd=ddp.root, env=ddp.environ(), stdin=subprocess.DEVNULL, stdout=out, stderr=out,
        )  # fmt: skip
    ddp.started.append(process)
    printed = (ddp.root / "printed").read_text
    eventually(lambda: "epoch 1/1000: val_acc 0." in printed(), 90, what="the first epoch")
    process.terminate()
    assert process.wait(30) == 143, printed()
    assert "Traceback" not in printed()
    assert os.listdir(ddp.root / "by-hand") == ["last.pt"]


# -- shell -----------------------------------------------------------------------------------------


@pytest.fixture
def shell(project):
    """examples/shell, with the commands of this environment on PATH."""
    ignored = shutil.ignore_patterns("__pycache__", ".gputasks", "*.json*", "*.txt")
    shutil.copytree(EXAMPLES / "shell", project.root, ignore=ignored, dirs_exist_ok=True)
    project.env["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    project.env["NIGHTLY_WAIT_S"] = "0"
    return project


def nightly(shell, *targets: str, code: int) -> str:
    done = shell.run("./nightly.sh", *targets)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    return re.sub(r"(?m)^\d\d:\d\d:\d\d nightly: ", "", done.stdout)


def test_nightly_success_and_nothing_to_do(shell):
    first = nightly(shell, code=0)
    assert "report: done\ncount: never built here\ncount: done\n" in first
    assert first.endswith("count: succeeded\nfit: succeeded\nreport: succeeded\n")
    assert (shell.root / "report.txt").exists()
    diary = [json.loads(line) for line in (shell.root / "nightly.jsonl").read_text().splitlines()]
    made = [e["task"] for e in diary if e["kind"] == "task" and e["status"] == "succeeded"]
    assert made == ["fit", "report", "count"]
    assert nightly(shell, code=0).startswith("report: up to date\ncount: up to date\n")


def test_nightly_failed_task_blocks_only_what_depends_on_it(shell):
    readings = shell.root / "readings.csv"
    good = readings.read_text()
    readings.write_text(good + "eleven,82.0\n")
    said = nightly(shell, "fit", "report", "count", code=1)
    assert "fit: `fit` failed: `python` exited with code 1\n" in said
    assert "fit: ValueError: could not convert string to float: 'eleven'\n" in said
    assert "report: skipped, `fit` failed\n" in said
    assert "count: done\n" in said
    # Without naming it, the failing task is found below the target.
    assert "report: `fit` failed: " in nightly(shell, code=1)
    readings.write_text(good)
    assert "report: done\n" in nightly(shell, code=0)


def test_nightly_tries_again_when_the_machine_is_at_fault(shell):
    (shell.root / "readings.csv").rename(shell.root / "elsewhere")
    said = nightly(shell, code=2)
    assert said.count("report: input `readings.csv` is missing\n") == 3
    assert said.endswith("report: try 3 of 3 in 0 s\nreport: input `readings.csv` is missing\n")
    # It arrives while the script waits.
    fake = shell.write("bin/sleep", "#!/bin/sh\nmv elsewhere readings.csv\n")
    fake.chmod(0o755)
    shell.env["PATH"] = f"{fake.parent}{os.pathsep}{shell.env['PATH']}"
    said = nightly(shell, code=0)
    assert "report: try 2 of 3 " in said
    assert "report: done\n" in said


def test_nightly_faulty_dodo_and_unknown_target(shell):
    assert nightly(shell, "rapport", code=3).endswith(
        "rapport: dodo.py is faulty, or has no such task\n"
    )
    dodo = shell.root / "dodo.py"
    dodo.write_text(dodo.read_text().replace("artifacts=[model]", "artifcats=[model]"))
    assert nightly(shell, code=3).endswith("report: dodo.py is faulty, or has no such task\n")
    assert not (shell.root / ".gputasks/runs").exists()


def test_nightly_interrupted(shell):
    """Ctrl-C of a terminal reaches the script and doit alike; the script lets doit end first."""
    fit = shell.root / "fit.py"
    fit.write_text("import time\nopen('started', 'w').close()\ntime.sleep(60)\n")
    process = subprocess.Popen(
        ["./nightly.sh"], cwd=shell.root, env=shell.environ(), start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        eventually((shell.root / "started").exists, 20, what="the first step")
        os.killpg(process.pid, signal.SIGINT)
        said, _ = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130, said
    assert said.endswith(" nightly: report: interrupted\n")
    assert "count:" not in said
    shell.gone()
