"""`gputasks plan`: everything that can be told before a start, and nothing is started."""

from __future__ import annotations

import json

from gputasks.testing import fake_nvidia_smi

DODO = """
def task_data():
    return gt.command(["cp", "raw", "data"], file_dep=["raw"], artifacts=["data"])

def task_train():
    return gt.train("train.py", python={python!r}, params={{"batch_size": 16, "lr": {lr},
                    "accumulate_grad_batches": 2}}, file_dep=["data"], artifacts=["model.bin"],
                    env={{"WANDB_API_KEY": "${{secrets.WANDB_API_KEY}}", "MODE": "offline"}},
                    nproc_per_node=2, resources=gt.Resources(gpu_count={gpus!r}))

def task_plain():
    return {{"actions": ["touch plain"], "file_dep": ["model.bin"], "targets": ["plain"]}}
"""
SCRIPT = """\
import os
open("ran", "a").write("x")
if os.environ["RANK"] == "0":
    open("model.bin", "w").write("weights" * 100)
"""


def make(project, python, lr=1, gpus=0):
    project.dodo(DODO.format(python=python, lr=lr, gpus=gpus))
    project.write("train.py", SCRIPT)
    if not (project.root / "raw").exists():
        project.write("raw", "1")


def steps(project, *args, **env):
    result = project.gputasks("plan", "--json", *args, **env)
    assert result.returncode == 0, result.stderr
    return {s["task"]: s for s in json.loads(result.stdout)}


def test_before_the_first_run_everything_is_told_in_order(project, fake_python):
    make(project, fake_python)
    result = project.gputasks("plan", WANDB_API_KEY="sesame-open")
    assert result.returncode == 0, result.stderr
    text = result.stdout
    assert "sesame" not in text
    assert text.index("data: would run") < text.index("train: would run") < text.index("plain: ")
    assert "why: never built here" in text
    assert "torch.distributed.run" in text
    assert "--batch_size 16" in text
    assert "2 workers, no GPU, gloo" in text
    assert "secrets: WANDB_API_KEY" in text
    assert "batch: 16 per worker, 64 in all" in text
    assert "to run" in text.splitlines()[-1]
    assert not (project.root / "ran").exists()
    assert not (project.root / "data").exists()


def test_the_plan_follows_what_happened(project, fake_python):
    make(project, fake_python)
    project.env["WANDB_API_KEY"] = "x" * 12
    assert project.doit().returncode == 0
    assert {s["action"] for s in steps(project).values()} == {"none"}

    project.write("raw", "2")
    planned = steps(project)
    assert (planned["data"]["action"], planned["train"]["action"]) == ("run", "maybe")
    assert planned["data"]["reasons"] == ["raw changed"]

    project.write("raw", "1")
    make(project, fake_python, lr=2)
    train = steps(project, "train")["train"]
    assert train["action"] == "run"
    assert train["reasons"] == ["lr: 1 -> 2"]
    assert train["expected_s"] > 0
    assert train["disk"]["needed"] >= 2 * 700
    assert train["disk"]["free"] > 0
    assert project.doit().returncode == 0
    make(project, fake_python, lr=1)
    assert steps(project)["train"]["action"] == "restore"
    before = (project.root / "ran").read_text()
    assert project.gputasks("plan").returncode == 0
    assert (project.root / "ran").read_text() == before


def test_gpus_are_placed_as_a_lease_would(project, fake_python, tmp_path):
    make(project, fake_python, gpus=2)
    uuids = [f"GPU-{i}" for i in range(4)]
    fake_nvidia_smi(str(tmp_path / "bin"), uuids, busy={"GPU-0": 4242})
    path = f"{tmp_path / 'bin'}:/usr/bin:/bin"
    train = steps(project, "train", PATH=path)["train"]
    assert [g["uuid"] for g in train["placement"][0]["gpus"]] == ["GPU-1", "GPU-2"]
    assert train["placement"][0]["ranks"] == [0, 1]
    assert train["backend"] == "nccl"
    make(project, fake_python, gpus=8)
    faults = steps(project, "train", PATH=path)["train"]["faults"]
    assert "not enough GPUs: asked for 8, this machine shows 4" in faults


def test_an_unknown_task_and_a_faulty_file_end_with_3(project):
    project.dodo("def task_a():\n    return {'actions': None}\n")
    result = project.gputasks("plan", "b")
    assert result.returncode == 3
    assert "no task `b` in dodo.py" in result.stderr
    project.write("dodo.py", "import gputasks as gt\ngt.trian\n")
    assert project.gputasks("plan").returncode == 3
