"""Params on the command line, smoke runs, retries."""

from __future__ import annotations

import json

import pytest

TRAIN = """
def task_train():
    return gt.train("train.py", python={python!r}, params={{"lr": 0.001, "epochs": 3, "amp": True,
                    "name": "base", "layers": [1, 2], "opt": {{"beta": 0.9}}, "seed": None}},
                    artifacts=["out.json"], resources=gt.Resources(gpu_count=0), {more})
"""
SCRIPT = """\
import json, os, sys
with open(os.environ["GPUTASKS_PARAMS"]) as file:
    json.dump({"params": json.load(file), "argv": sys.argv[1:]}, open("out.json", "w"))
"""


@pytest.fixture
def training(project, fake_python):
    def make(more=""):
        project.dodo(TRAIN.format(python=fake_python, more=more))
        project.write("train.py", SCRIPT)
        return project

    return make


def out(project):
    return json.loads((project.root / "out.json").read_text())


def test_an_option_holds_for_one_invocation_and_its_absence_is_told(training):
    project = training()
    first = project.doit("train", "--lr", "0.01", "--no-amp", "--epochs", "5")
    assert first.returncode == 0, first.stderr
    params = out(project)["params"]
    assert (params["lr"], params["amp"], params["epochs"]) == (0.01, False, 5)
    assert "--lr" in out(project)["argv"]

    again = project.doit("train", "--lr", "1e-2", "--no-amp", "--epochs", "5")
    assert "up to date" in again.stderr, again.stderr
    kept = project.doit("train", "--keep")
    assert "up to date" in kept.stderr, kept.stderr

    without = project.doit("train")
    assert "lr: 0.01 -> 0.001 (option not given)" in without.stderr
    assert "amp: false -> true (option not given)" in without.stderr
    assert out(project)["params"]["lr"] == 0.001


def test_values_are_toml_literals_of_the_declared_type(training):
    project = training()
    result = project.doit(
        "train", "--layers", "[3, 4]", "--opt.beta", "1", "--name", "it's 5%", "--seed", "7",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    params = out(project)["params"]
    assert params["layers"] == [3, 4]
    assert params["opt"] == {"beta": 1.0}
    assert isinstance(params["opt"]["beta"], float)
    assert params["name"] == "it's 5%"
    assert params["seed"] == 7


def test_wrong_types_are_told_all_at_once_and_nothing_starts(training):
    project = training()
    result = project.doit("train", "--lr", "fast", "--epochs", "2.5")
    assert result.returncode == 3, result.stderr
    assert "option `--lr` of task `train` must be a number, as in dodo.py, not `fast`" in (
        result.stderr
    )
    assert "option `--epochs` of task `train` must be a whole number" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (project.root / ".gputasks" / "runs").exists()


def test_a_param_with_the_name_of_an_option_of_ours_is_refused(project):
    project.write("train.py", "")
    project.dodo("""
        def task_train():
            return gt.train("train.py", params={"keep": 1, "smoke": 2})
    """)
    result = project.doit()
    assert result.returncode == 3
    for name in ("keep", "smoke"):
        assert f"param `{name}` of `gt.train` has the name of an option of gputasks" in (
            result.stderr + result.stdout
        )


def test_a_smoke_run_counts_apart(training):
    project = training('smoke={"limit_train_batches": 0.05, "epochs": 1}')
    assert project.doit("train").returncode == 0
    smoke = project.doit("train", "--smoke")
    assert smoke.returncode == 0, smoke.stderr
    assert "smoke run" in smoke.stderr
    params = out(project)["params"]
    assert (params["limit_train_batches"], params["epochs"], params["lr"]) == (0.05, 1, 0.001)
    assert "up to date" in project.doit("train", "--smoke").stderr
    real = project.doit("train")
    assert "the last run was a smoke run" in real.stderr
    assert out(project)["params"]["epochs"] == 3


def test_smoke_without_a_definition_is_refused(training):
    result = training().doit("train", "--smoke")
    assert result.returncode == 3
    assert "`train` has no `smoke=`" in result.stderr


FLAKY = """\
import os, sys
attempt = int(os.environ["GPUTASKS_ATTEMPT"])
if attempt < 2:
    sys.exit(17)
open("out.json", "w").write("{}")
"""


def test_retries_are_recorded_and_wait_longer_each_time(training):
    project = training("retries=3, retry_delay=0.02, retry_on=[17]")
    project.write("train.py", FLAKY)
    result = project.doit("train")
    assert result.returncode == 0, result.stderr
    assert "trying again in 0.02 s" in result.stderr
    assert "trying again in 0.04 s" in result.stderr
    (record,) = project.root.glob(".gputasks/runs/train/[!l]*/run.json")
    attempts = json.loads(record.read_text())["attempts"]
    assert [a["outcome"] for a in attempts] == ["failed", "failed", "succeeded"]


@pytest.mark.parametrize("on", ["[18]", '["lost"]', '["OutOfMemoryError", "SIGKILL"]'])
def test_what_retry_on_does_not_name_is_not_tried_again(training, on):
    project = training(f"retries=3, retry_on={on}")
    project.write("train.py", FLAKY)
    result = project.doit("train")
    assert result.returncode == 1
    assert "trying again" not in result.stderr
    assert "exited with code 17" in result.stderr


def test_an_exception_can_be_retried_by_name(training):
    project = training('retries=1, retry_delay=0.01, retry_on=["ConnectionError"]')
    project.write("train.py", FLAKY.replace("sys.exit(17)", "raise ConnectionError('gone')"))
    result = project.doit("train")
    assert "trying again" in result.stderr
    assert result.returncode == 1  # the second attempt fails too


def test_faults_of_the_new_keywords_are_told(project):
    project.write("train.py", "")
    project.dodo("""
        def task_train():
            return gt.train("train.py", params={"max_epochs": 1}, resume_params=["max_epoch"],
                            retry_on=["lots"], retry_delay="soon", smoke=3)
    """)
    result = project.doit()
    said = result.stderr + result.stdout
    assert result.returncode == 3
    assert "names `max_epoch`, which is none of its params" in said
    assert "did you mean `max_epochs`?" in said
    for key in ("retry_on", "retry_delay", "smoke"):
        assert f"`{key}`" in said
