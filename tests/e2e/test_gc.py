"""`gputasks gc` tells first, and never takes what a task still needs."""

from __future__ import annotations

import json
import os
import time

DODO = """
import os
def task_make():
    return gt.command(["sh", "-c", "test ! -e fail && echo $V > out/a"], env={{"V": "{v}"}},
                      artifacts=["out"])
"""


def make(project, v, code=0):
    project.dodo(DODO.format(v=v).replace('sh", "-c", "', 'sh", "-c", "mkdir -p out; '))
    result = project.doit()
    assert result.returncode == code, result.stderr
    return result.stderr


def test_nothing_is_removed_before_it_is_told_and_what_is_needed_stays(project):
    for v in range(4):
        make(project, v)
    (project.root / "out/foreign").write_text("mine" * 100)
    make(project, 9)  # what somebody changed goes to the trash
    project.write("fail", "")
    make(project, 10, code=1)
    runs = project.root / ".gputasks/runs/make"
    ids = {p.name for p in runs.iterdir() if not p.is_symlink()}
    assert len(ids) == 6

    told = project.gputasks("gc", "--keep-runs", "2", "--older-than", "0")
    assert told.returncode == 0, told.stderr
    assert "nothing was removed: `gputasks gc --yes` does it" in told.stdout
    assert ".gputasks/trash/make/" in told.stdout
    assert {p.name for p in runs.iterdir() if not p.is_symlink()} == ids
    data = json.loads(
        project.gputasks("gc", "--keep-runs", "2", "--older-than", "0", "--json").stdout
    )
    assert data["removed"] is False
    assert data["bytes"] == sum(i["size"] for i in data["items"]) > 0

    done = project.gputasks("gc", "--keep-runs", "2", "--older-than", "0", "--yes")
    assert done.returncode == 0, done.stderr
    left = {p.name for p in runs.iterdir() if not p.is_symlink()}
    assert len(left) == 2
    assert os.readlink(runs / "latest") in left
    assert not list(project.root.glob(".gputasks/trash/make/*"))
    # Everything in the cache is still there, and so is what the failed run left to resume from.
    assert (runs / "latest/partial/out/a").exists() or (runs / "latest/run.json").exists()
    (project.root / "fail").unlink()
    assert "restored from the cache" in make(project, 2)


def test_the_cache_can_be_emptied(project):
    for v in range(3):
        make(project, v)
    assert len(list(project.root.glob(".gputasks/cache/v1/entries/*"))) == 3
    assert project.gputasks("gc", "--cache-cap", "0", "--yes").returncode == 0
    assert not list(project.root.glob(".gputasks/cache/v1/entries/*"))
    assert not list(project.root.glob(".gputasks/cache/v1/objects/*/*"))
    assert "up to date" in make(project, 2)
    assert "restored" not in make(project, 0)


def test_contents_and_copies_that_nobody_names_go_when_they_are_old(project):
    make(project, 1)
    cache = project.root / ".gputasks/cache/v1"
    old = time.time() - 7200
    for name in ("objects/ab/cdef", "tmp/host-1-abc"):
        path = cache / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x" * 100)
        assert "nothing to remove" in project.gputasks("gc").stdout
        os.utime(path, (old, old))
        assert project.gputasks("gc", "--yes").returncode == 0
        assert not path.exists()
    (project.root / "out/a").unlink()
    assert "restored from the cache" in make(project, 1)


def test_a_task_that_runs_is_left_alone(project):
    project.dodo("""
        def task_make():
            return gt.command(["sh", "-c", "echo 1 > a; while test ! -e go; do sleep 0.05; done"],
                              artifacts=["a"])
    """)
    running = project.start()
    deadline = time.monotonic() + 20
    while not (project.root / "a").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    gc = project.gputasks("gc", "--yes", "--older-than", "0", "--cache-cap", "0")
    assert gc.returncode == 0, gc.stderr
    project.write("go", "")
    assert running.wait(20) == 0, project.output(running)


def test_faulty_options_are_one_line(project):
    make(project, 1)
    for args in (["--older-than", "soon"], ["--cache-cap", "5"], ["--keep-runs", "0"]):
        result = project.gputasks("gc", *args)
        assert result.returncode == 3, result.stderr
        assert f"error: `{args[0]}`" in result.stderr
