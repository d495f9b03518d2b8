"""Runs that continue others: after an interruption, and when only `resume_params` have changed."""

from __future__ import annotations

import json

import pytest

DODO = """
def task_train():
    return gt.train("train.py", python={python!r}, params={{"max_epochs": {epochs}, "lr": {lr}}},
                    args=["--ckpt", "{{resume}}"], artifacts=["ckpt"],
                    resources=gt.Resources(gpu_count=0), {more})
"""
SCRIPT = """\
import json, os, pickle, sys
with open(os.environ["GPUTASKS_PARAMS"]) as file:
    params = json.load(file)
resume = os.environ.get("GPUTASKS_RESUME_CKPT")
assert ("--ckpt" in sys.argv) == bool(resume), sys.argv
epoch = pickle.load(open(resume, "rb")) if resume else 0
os.makedirs("ckpt", exist_ok=True)
with open("log", "a") as log:
    log.write(f"from {epoch} to {params['max_epochs']} with {sorted(os.listdir('ckpt'))}\\n")
while epoch < params["max_epochs"]:
    epoch += 1
    with open(f"ckpt/epoch-{epoch}.ckpt", "wb") as file:
        pickle.dump(epoch, file, protocol=4)
    if os.path.exists("fail") and epoch == 2:
        sys.exit(9)
"""


@pytest.fixture
def training(project, fake_python):
    def make(epochs=2, lr=1, more='resume_params=("max_epochs",)'):
        project.dodo(DODO.format(python=fake_python, epochs=epochs, lr=lr, more=more))
        project.write("train.py", SCRIPT)
        return project

    return make


def log(project) -> list[str]:
    return (project.root / "log").read_text().splitlines()


def record(project) -> dict:
    return json.loads((project.root / ".gputasks/runs/train/latest/run.json").read_text())


def test_more_epochs_continue_from_the_last_checkpoint_and_the_chain_is_kept(training):
    project = training(epochs=2)
    assert project.doit().returncode == 0
    first = record(project)["run"]
    training(epochs=3)
    result = project.doit()
    assert result.returncode == 0, result.stderr
    assert "max_epochs: 2 -> 3" in result.stderr
    assert f"resuming from `ckpt/epoch-2.ckpt` of run {first}" in result.stderr
    second = record(project)["run"]
    training(epochs=5)
    assert project.doit().returncode == 0
    assert record(project)["chain"] == [first, second]
    assert [line.partition(" with")[0] for line in log(project)] == [
        "from 0 to 2",
        "from 2 to 3",
        "from 3 to 5",
    ]
    assert "epoch-1.ckpt" in log(project)[2]
    # And back: the shorter run is still there.
    training(epochs=2)
    assert "restored from the cache" in project.doit().stderr
    assert sorted(p.name for p in (project.root / "ckpt").iterdir()) == [
        "epoch-1.ckpt",
        "epoch-2.ckpt",
    ]


@pytest.mark.parametrize(
    "change",
    [{"lr": 2}, {"more": ""}, {"more": 'resume_params=("max_epochs",), resume=False'}],
)
def test_any_other_change_starts_afresh(training, change):
    project = training(epochs=2)
    assert project.doit().returncode == 0
    training(epochs=3, **change)
    assert project.doit().returncode == 0
    assert log(project)[1] == "from 0 to 3 with []"


def test_an_interrupted_run_may_be_prolonged_too(training):
    project = training(epochs=2)
    project.write("fail", "")
    assert project.doit().returncode == 1
    (project.root / "fail").unlink()
    training(epochs=4)
    result = project.doit()
    assert result.returncode == 0, result.stderr
    assert log(project)[1].startswith("from 2 to 4")


def test_what_the_cache_could_not_take_is_copied_before_it_is_prolonged(training):
    project = training(epochs=2)
    project.env["GPUTASKS_CACHE_CAP"] = "1B"
    assert project.doit().returncode == 0
    first = record(project)["run"]
    training(epochs=3)
    result = project.doit()
    assert result.returncode == 0, result.stderr
    assert log(project)[1].startswith("from 2 to 3")
    assert f"a copy of what run {first} left is at" in result.stderr
    (copy,) = project.root.glob(".gputasks/trash/train/*/ckpt")
    assert sorted(p.name for p in copy.iterdir()) == ["epoch-1.ckpt", "epoch-2.ckpt"]


def test_a_forced_run_does_not_continue(training):
    project = training(epochs=2)
    assert project.doit().returncode == 0
    training(epochs=3)
    assert project.doit("forget", "train").returncode == 0
    assert project.doit().returncode == 0
    assert log(project)[1] == "from 0 to 3 with []"
