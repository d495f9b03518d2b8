"""Artifacts return from the cache in place of a run, verified, and nothing is lost on the way."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess

import pytest
from conftest import Project, eventually

TRAIN = """
def task_train():
    return gt.train("train.py", python={python!r}, params={{"lr": {lr}}}, artifacts=["ckpt", "score.json"],
                    resources=gt.Resources(gpu_count=0), {more})

def task_report():
    return gt.command(["cp", "score.json", "report.json"], file_dep=["score.json"],
                      artifacts=["report.json"])
"""
SCRIPT = """\
import json, os
with open("ran", "a") as file:
    file.write("x")
with open(os.environ["GPUTASKS_PARAMS"]) as file:
    lr = json.load(file)["lr"]
os.makedirs("ckpt/sub")
open("ckpt/best.bin", "w").write(f"weights {lr}" * 1000)
os.symlink("best.bin", "ckpt/last.bin")
open("ckpt/sub/empty", "w").close()
open("ckpt/run.sh", "w").write("#!/bin/sh\\n")
os.chmod("ckpt/run.sh", 0o755)
json.dump({"lr": lr}, open("score.json", "w"))
"""


@pytest.fixture
def training(project, fake_python):
    def make(lr=1, more=""):
        project.dodo(TRAIN.format(python=fake_python, lr=lr, more=more))
        project.write("train.py", SCRIPT)
        return project

    return make


def runs(project) -> int:
    return len((project.root / "ran").read_text())


def ok(project, *args, **env) -> str:
    result = project.doit(*args, **env)
    assert result.returncode == 0, result.stderr
    return result.stderr


def test_changed_and_changed_back_is_restored_and_says_so(training):
    project = training(lr=1)
    ok(project)
    training(lr=2)
    assert "succeeded" in ok(project)
    training(lr=1)
    said = ok(project)
    assert "lr: 2 -> 1" in said
    assert "restored from the cache" in said
    assert runs(project) == 2
    assert (project.root / "ckpt/best.bin").read_text() == "weights 1" * 1000
    assert os.readlink(project.root / "ckpt/last.bin") == "best.bin"
    assert os.access(project.root / "ckpt/run.sh", os.X_OK)
    assert not os.access(project.root / "ckpt/best.bin", os.X_OK)
    assert json.loads((project.root / "report.json").read_text()) == {"lr": 1}
    assert ok(project).count("up to date") == 2


def test_a_restored_file_is_no_link_into_the_cache(training):
    project = training()
    ok(project)
    shutil.rmtree(project.root / "ckpt")
    ok(project)
    path = project.root / "ckpt/best.bin"
    assert path.stat().st_nlink == 1
    path.write_text("spoilt")
    said = ok(project, "train")
    assert "runs: ckpt/best.bin changed" in said
    assert "restored from the cache" in said
    assert path.read_text() == "weights 1" * 1000
    assert runs(project) == 1
    # What stood there was nobody's product: it is kept, and its place told.
    (kept,) = project.root.glob(".gputasks/trash/train/*/ckpt/best.bin")
    assert kept.read_text() == "spoilt"
    assert str(kept.parent.relative_to(project.root)) in said


def test_clean_and_a_lost_database_cost_no_run_but_forget_and_a_force_do(training):
    project = training()
    ok(project)
    assert project.doit("clean", "train").returncode == 0
    assert "restored from the cache" in ok(project, "train")
    (project.root / ".gputasks/state.db").unlink()
    said = ok(project, "train")
    assert "doit has no record of it: its receipt is checked" in said
    (project.root / ".gputasks/state.db").unlink()
    shutil.rmtree(project.root / "ckpt")
    assert "restored from the cache" in ok(project, "train")
    assert runs(project) == 1
    assert project.doit("forget", "train").returncode == 0
    said = ok(project, "train")
    assert "forgotten by `doit forget`" in said
    assert "restored" not in said
    assert runs(project) == 2
    assert "restored" not in ok(project, "-a", "train")
    assert runs(project) == 3


def test_a_damaged_content_is_noticed_and_made_anew(training):
    project = training(lr=1)
    ok(project)
    training(lr=2)
    ok(project)
    training(lr=1)
    damaged = [
        p
        for p in project.root.glob(".gputasks/cache/v1/objects/*/*")
        if b"weights 1" in p.read_bytes()
    ]
    for path in damaged:
        path.chmod(0o644)
        path.write_bytes(path.read_bytes().replace(b"weights 1", b"weights 7"))
    said = ok(project, "train")
    assert "its artifacts in the cache are damaged; making them anew" in said
    assert runs(project) == 3
    assert (project.root / "ckpt/best.bin").read_text() == "weights 1" * 1000


def test_cache_false_holds_for_its_task_and_for_as_long_as_it_is_there(training):
    project = training(more="cache=False")
    ok(project)
    names = [p.read_text() for p in project.root.glob(".gputasks/cache/v1/entries/*")]
    assert [json.loads(n)["task"] for n in names] == ["report"]
    shutil.rmtree(project.root / "ckpt")
    assert "restored" not in ok(project)
    training()
    assert "up to date" in ok(project, "train")
    shutil.rmtree(project.root / "ckpt")
    assert "restored" not in ok(project, "train")
    shutil.rmtree(project.root / "ckpt")
    assert "restored from the cache" in ok(project, "train")


def test_a_clone_beside_it_shares_the_cache(training, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o2770)
    shared.chmod(0o2770)
    project = training()
    project.env["GPUTASKS_CACHE_DIR"] = str(shared)
    ok(project)
    for path in shared.rglob("*"):
        assert path.stat().st_mode & 0o007 == 0, path
        assert path.stat().st_mode & 0o040, path
        if path.is_dir():
            assert path.stat().st_mode & 0o2020 == 0o2020
    other = tmp_path / "other"
    other.mkdir()
    for name in ("dodo.py", "train.py"):
        shutil.copy(project.root / name, other / name)
    clone = Project(other, project.mark, dict(project.env))
    said = ok(clone)
    assert said.count("restored from the cache") == 2
    assert not (other / "ran").exists()
    assert (other / "ckpt/best.bin").read_text() == "weights 1" * 1000


def test_branches_of_git_come_back(training):
    project = training(lr=1)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]

    def call(*args):
        subprocess.run([*git, *args], cwd=project.root, check=True, capture_output=True)

    project.write(".gitignore", "ran\nckpt\n*.json\n")
    call("init", "-b", "main")
    call("add", ".")
    call("commit", "-m", "one")
    ok(project)
    call("checkout", "-b", "two")
    training(lr=2)
    call("commit", "-am", "two")
    ok(project)
    call("checkout", "main")
    assert "restored from the cache" in ok(project)
    call("checkout", "two")
    assert "restored from the cache" in ok(project)
    assert runs(project) == 2


def test_an_input_that_is_missing_is_told_before_the_cache_is_asked(project):
    project.dodo("""
        def task_copy():
            return gt.command(["cp", "a", "b"], file_dep=["a"], artifacts=["b"])
    """)
    project.write("a", "1")
    ok(project)
    (project.root / "a").unlink()
    (project.root / "b").unlink()
    assert project.doit().returncode != 0
    assert not (project.root / "b").exists()


def test_limits_are_told_and_the_least_recently_used_goes(training):
    project = training(lr=1)
    project.env["GPUTASKS_CACHE_CAP"] = "15KB"
    ok(project, "train")  # 9 KB of weights
    training(lr=2)
    ok(project, "train")
    entries = list(project.root.glob(".gputasks/cache/v1/entries/*"))
    assert len(entries) == 1
    training(lr=2)
    shutil.rmtree(project.root / "ckpt")
    assert "restored from the cache" in ok(project, "train")
    training(lr=1)
    said = ok(project, "train", GPUTASKS_CACHE_CAP="1KB")
    assert "artifacts are not kept in the cache: larger than the cache may be" in said
    assert "restored" not in said


def test_outputs_that_could_not_be_kept_stay_in_the_trash(training):
    project = training(lr=1)
    project.env["GPUTASKS_CACHE_CAP"] = "1KB"
    ok(project, "train")
    training(lr=2)
    said = ok(project, "train")
    (kept,) = project.root.glob(".gputasks/trash/train/*/ckpt/best.bin")
    assert kept.read_text() == "weights 1" * 1000
    assert "what stood at the artifacts' paths is now at" in said


def test_faulty_settings_are_told_before_anything_starts(training):
    project = training()
    project.write("gputasks.toml", '[cache]\ncapp = "1GB"\nfree_space = "lots"\n')
    result = project.doit("train")
    assert result.returncode == 3, result.stderr
    assert "gputasks.toml:2" in result.stderr
    assert "did you mean `cap`?" in result.stderr
    assert "free_space" in result.stderr
    assert not (project.root / "ran").exists()


def test_the_folder_of_the_settings_is_used(training, tmp_path):
    project = training()
    project.write("gputasks.toml", f'[cache]\ndir = "{tmp_path}/elsewhere"\n')
    ok(project)
    assert list((tmp_path / "elsewhere/v1/entries").iterdir())
    assert not (project.root / ".gputasks/cache").exists()


@pytest.mark.parametrize("mode", [("-n", "2", "-P", "process"), ("-n", "2", "-P", "thread")])
def test_keeping_ends_with_the_process_in_both_modes(training, mode):
    project = training()
    ok(project, *mode)
    project.gone()
    assert len(list(project.root.glob(".gputasks/cache/v1/entries/*"))) == 2
    assert not list(project.root.glob(".gputasks/cache/v1/tmp/*"))


LARGE = """
def task_make():
    return gt.command(["sh", "-c", "head -c 400000000 /dev/zero | tr '\\\\0' {letter} > big.bin"],
                      artifacts=["big.bin"])
"""


def killed_when(project, pattern: str) -> None:
    """kill -9 of doit as soon as there is such a file."""
    process = project.start()
    eventually(lambda: list(project.root.glob(pattern)), 30, what=pattern)
    process.kill()
    assert process.wait() == -9


def test_kill_9_while_keeping_leaves_no_entry_and_the_task_is_done(project):
    project.dodo(LARGE.format(letter="a"))
    killed_when(project, ".gputasks/cache/v1/tmp/*")
    project.gone()
    assert not list(project.root.glob(".gputasks/cache/v1/entries/*"))
    # Killed perhaps before doit recorded it: the receipt is enough.
    before = (project.root / "big.bin").stat().st_ino
    ok(project)
    assert (project.root / "big.bin").stat().st_ino == before


def test_kill_9_while_restoring_loses_nothing(project):
    project.dodo(LARGE.format(letter="a"))
    ok(project)
    project.dodo(LARGE.format(letter="b"))
    ok(project)
    project.dodo(LARGE.format(letter="a"))
    killed_when(project, ".gputasks/runs/make/*/restored/big.bin")
    project.gone()
    said = ok(project)
    assert "restored from the cache" in said
    with open(project.root / "big.bin", "rb") as file:
        assert file.read(10) == b"a" * 10
    assert (project.root / "big.bin").stat().st_size == 400_000_000
    project.dodo(LARGE.format(letter="b"))
    assert "restored from the cache" in ok(project)


def test_ctrl_c_at_the_end_gives_the_keeping_up(project):
    project.dodo(LARGE.format(letter="a"))
    process = project.start()
    eventually(lambda: list(project.root.glob(".gputasks/cache/v1/tmp/*")), 30)
    process.send_signal(signal.SIGINT)
    process.wait(20)
    assert not list(project.root.glob(".gputasks/cache/v1/tmp/*"))
    # Where it came between the receipt and doit's own record, the receipt is enough.
    before = (project.root / "big.bin").stat().st_ino
    ok(project)
    assert (project.root / "big.bin").stat().st_ino == before


def test_a_force_after_a_failure_is_still_a_force(training):
    project = training()
    ok(project, "train")
    project.write("train.py", "raise SystemExit(5)")
    assert project.doit("train").returncode == 1
    project.write("train.py", SCRIPT)
    assert "restored" not in ok(project, "-a", "train")
    assert runs(project) == 2


def test_ctrl_c_while_restoring_leaves_what_stood_there(project):
    for letter in "ab":
        project.dodo(LARGE.format(letter=letter))
        ok(project)
    project.dodo(LARGE.format(letter="a"))
    before = (project.root / "big.bin").stat().st_ino
    process = project.start()
    eventually(lambda: list(project.root.glob(".gputasks/runs/make/*/restored/big.bin")), 30)
    process.send_signal(signal.SIGINT)
    if process.wait(20) == 130:
        assert (project.root / "big.bin").stat().st_ino == before
        project.dodo(LARGE.format(letter="b"))
        ok(project)
        assert (project.root / "big.bin").stat().st_ino == before
