"""State that survives: locks, damaged databases, two at once."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest
from conftest import eventually

SLOW = """
def task_slow():
    return gt.command(["sh", "-c", "echo x >> count; touch started; sleep {seconds}; echo 1 > out"], artifacts=["out"])
def task_other():
    return gt.command(["sh", "-c", "echo 1 > other"], artifacts=["other"])
"""


def test_same_task_twice_waits_and_does_not_run_again(project):
    project.dodo(SLOW.format(seconds=1.5))
    first = project.start("slow")
    eventually(lambda: (project.root / "started").exists(), 20)
    second = project.start("slow")
    eventually(lambda: "another run holds this task" in project.output(second), 20)
    assert str(first.pid) in project.output(second)
    assert project.doit("other").returncode == 0
    assert first.poll() is None, "other tasks may run meanwhile"
    assert (first.wait(20), second.wait(20)) == (0, 0)
    assert (project.root / "count").read_text() == "x\n"
    assert "up to date" in project.doit("slow").stderr


def test_lock_of_a_dead_owner_is_taken_over(project):
    project.dodo(SLOW.format(seconds=30))
    first = project.start("slow")
    eventually(lambda: (project.root / "started").exists(), 20)
    first.send_signal(signal.SIGKILL)
    first.wait()
    project.write("dodo.py", (project.root / "dodo.py").read_text().replace("sleep 30", "sleep 0"))
    result = project.doit("slow")
    assert result.returncode == 0, result.stderr
    assert "died" in result.stderr


def test_lock_of_another_machine(project):
    project.dodo(SLOW.format(seconds=0))
    lock = project.write(
        ".gputasks/locks/slow.lock",
        json.dumps({"host": "elsewhere", "pid": 1, "since": 0, "task": "slow", "run": "zzzz"}),
    )
    result = project.doit("slow")
    assert result.returncode == 2
    assert "elsewhere" in result.stderr
    assert "gputasks unlock slow" in result.stderr
    assert project.gputasks("unlock", "slow").returncode == 0
    assert project.doit("slow").returncode == 0
    lock.write_text(json.dumps({"host": "elsewhere", "pid": 1, "since": 0}))
    os.utime(lock, (time.time() - 3600,) * 2)
    project.doit("forget", "slow")
    assert project.doit("slow").returncode == 0


@pytest.mark.parametrize("damage", ["half", "garbage", "empty"])
def test_damaged_database(project, damage):
    project.dodo(SLOW.format(seconds=0))
    assert project.doit("other").returncode == 0
    path = project.root / ".gputasks/state.db"
    data = path.read_bytes()
    path.write_bytes(
        {"half": data[: len(data) // 2], "garbage": b"garbage" * 500, "empty": b""}[damage]
    )
    result = project.doit("other")
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr
    assert "state.db" in result.stderr
    assert "up to date" not in result.stderr
    assert "up to date" in project.doit("other").stderr


def test_damaged_receipt_and_stat_cache(project):
    project.dodo(SLOW.format(seconds=0))
    assert project.doit("other").returncode == 0
    (project.root / ".gputasks/receipts/other.json").write_text("{")
    assert "restored from the cache" in project.doit("other").stderr
    for path in (project.root / ".gputasks").glob("stat-cache*"):
        path.write_bytes(b"\0garbage")
    result = project.doit("other")
    assert result.returncode == 0
    assert "up to date" in result.stderr


def test_eight_at_once_keep_all_records(project):
    project.dodo("""
        def task_t():
            for i in range(8):
                yield gt.command(["sh", "-c", f"echo {i} > out{i}"], name=str(i), artifacts=[f"out{i}"])
    """)
    running = [project.start(f"t:{i}") for i in range(8)]
    assert [p.wait(60) for p in running] == [0] * 8
    result = project.doit("list", "-s", "--all")
    assert result.stdout.count("U t:") == 8, result.stdout


def test_views_of_runs(project):
    project.dodo("""
        def task_good():
            return gt.command(["sh", "-c", "echo hello; echo 1 > good"], artifacts=["good"])
        def task_bad():
            return gt.command(["sh", "-c", "echo before the fall; exit 3"])
    """)
    project.doit("-c")
    status = project.gputasks("status")
    assert status.returncode == 0
    assert "good  succeeded" in status.stdout
    assert "bad   failed" in status.stdout
    assert project.gputasks("logs", "good").stdout == "hello\n"
    assert project.gputasks("logs", "bad", "--output", "copy.log").returncode == 0
    assert (project.root / "copy.log").read_text() == "before the fall\n"
    record = {r["task"]: r for r in json.loads(project.gputasks("status", "--json").stdout)}["bad"]
    assert record["attempts"][0]["returncode"] == 3
    assert record["started"].endswith("+00:00")
    assert record["duration_s"] > 0
    unknown = project.gputasks("logs", "godo")
    assert unknown.returncode == 3
    assert "did you mean `good`?" in unknown.stderr


def test_a_second_run_that_has_something_to_do_after_waiting(project):
    project.dodo(SLOW.format(seconds=1.5))
    first = project.start("slow")
    eventually(lambda: (project.root / "started").exists(), 20)
    # Another definition of the same task: what the first one makes does not satisfy it.
    project.write(
        "dodo.py", (project.root / "dodo.py").read_text().replace("echo 1 > out", "echo 2 > out")
    )
    second = project.start("slow")
    assert (first.wait(20), second.wait(20)) == (0, 0)
    text = project.output(second)
    assert "another run holds this task" in text
    assert "command changed" in text
    assert "succeeded" in text
    assert (project.root / "out").read_text() == "2\n"
