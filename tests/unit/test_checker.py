"""doit's up-to-date check by content, as users of plain tasks see it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from gputasks.doit_plugin.checker import ContentChecker, InputError
from gputasks.fingerprint import statcache

HEAD = """
from gputasks.doit_plugin.checker import ContentChecker
DOIT_CONFIG = {
    "backend": "gputasks", "dep_file": ".gputasks/state.db",
    "check_file_uptodate": ContentChecker, "verbosity": 2,
}
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def dodo(text):
    Path("dodo.py").write_text(HEAD + textwrap.dedent(text))


def doit(*args, status=0):
    done = subprocess.run(
        [sys.executable, "-m", "doit", *args], capture_output=True, text=True, timeout=60,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert "Traceback" not in done.stdout + done.stderr
    assert done.returncode == status, done.stdout + done.stderr
    return done


def marks(*args):
    """`.` for a task that ran, `-` for one that was up to date."""
    return "".join(
        line[0] for line in doit(*args).stdout.splitlines() if line[:3] in (".  ", "-- ")
    )


def test_touch_and_equal_times_and_equal_content():
    Path("f").write_bytes(b"aaa")
    dodo("""
    def task_t():
        return {"actions": [lambda: None], "file_dep": ["f"]}
    """)
    assert marks() == "."
    assert marks() == "-"
    os.utime("f")
    assert marks() == "-"
    assert marks() == "-"
    info = os.stat("f")
    Path("f").write_bytes(b"bbb")
    os.utime("f", ns=(info.st_atime_ns, info.st_mtime_ns))
    assert marks() == "."
    os.utime("f", (4 * 10**9, 4 * 10**9))
    assert marks() == "-"
    assert marks() == "-"


def test_a_folder_as_a_dependency():
    for name in ("data/a/b/c.txt", "data/top.txt"):
        os.makedirs(os.path.dirname(name), exist_ok=True)
        Path(name).write_text(name)
    dodo("""
    def task_t():
        return {"actions": [lambda: None], "file_dep": ["data/"]}
    """)
    assert [marks(), marks()] == [".", "-"]
    Path("data/a/b/c.txt").write_text("changed")
    assert [marks(), marks()] == [".", "-"]
    Path("data/a/new.txt").write_text("new")
    assert [marks(), marks()] == [".", "-"]
    os.rename("data/top.txt", "data/bottom.txt")
    assert [marks(), marks()] == [".", "-"]
    os.unlink("data/bottom.txt")
    assert [marks(), marks()] == [".", "-"]
    os.utime("data/a")
    assert "up-to-date" in doit("info", "t").stdout
    Path("data/more").touch()
    assert "data/" in doit("info", "t", status=1).stdout


@pytest.mark.parametrize("mode", [(), ("-n", "2")])
def test_an_edit_while_the_task_runs_makes_it_stale(mode):
    Path("f").write_text("1")
    dodo("""
    import pathlib
    def edit():
        if pathlib.Path("edit").exists():
            pathlib.Path("f").write_text("edited")
            pathlib.Path("edit").unlink()
    def task_t():
        return {"actions": [edit], "file_dep": ["f"]}
    """)
    assert [marks(*mode), marks(*mode)] == [".", "-"]
    Path("f").write_text("2")
    Path("edit").touch()
    assert [marks(*mode), marks(*mode), marks(*mode)] == [".", ".", "-"]


def test_a_first_run_with_a_missing_target_and_an_edit():
    # doit does not look at file_dep then; the one who announces the task does.
    Path("f").write_text("1")
    checker = ContentChecker()
    checker.before(["f", "missing"])
    Path("f").write_text("edited")
    recorded = checker.get_state("f", None)
    assert checker.check_modified("f", checker.info("f"), recorded)
    again = ContentChecker()
    assert again.get_state("f", None) != recorded


def test_what_another_task_changed_in_between_is_seen():
    os.mkdir("data")
    Path("data/f").write_text("1")
    dodo("""
    import pathlib
    def prepare():
        if pathlib.Path("prepare").exists():
            pathlib.Path("data/f").write_text("prepared")
            pathlib.Path("prepare").unlink()
    def fails():
        return not pathlib.Path("fail").exists()
    def task_a():
        return {"actions": [lambda: None], "file_dep": ["data"]}
    def task_b():
        return {"actions": [prepare, fails], "uptodate": [False]}
    def task_c():
        return {"actions": [lambda: None], "file_dep": ["data"]}
    """)
    assert [marks(), marks()] == ["...", "-.-"]
    Path("prepare").touch()
    assert marks() == "-.."
    Path("data/f").write_text("1")
    marks()
    assert marks() == "-.-"
    Path("prepare").touch()
    Path("fail").touch()
    lines = doit("-c", status=1).stdout.splitlines()
    assert [line for line in lines if line[:3] in (".  ", "-- ")] == ["-- a", ".  b", ".  c"]


def test_a_missing_dependency_is_doits_to_tell():
    dodo("""
    def task_t():
        return {"actions": [lambda: None], "file_dep": ["missing"]}
    """)
    assert "Dependent file 'missing' does not exist." in doit(status=2).stdout


def test_what_cannot_be_an_input():
    os.mkfifo("pipe")
    dodo("""
    def task_t():
        return {"actions": [lambda: None], "file_dep": ["pipe"]}
    """)
    text = "ERROR: `pipe` is a fifo: only files, folders and links can be inputs\n"
    assert doit("list", "-s", status=3).stderr == text
    os.unlink("pipe")
    os.symlink("pipe", "pipe")
    assert "`pipe` cannot be read: Too many levels" in doit(status=2).stdout


def test_states():
    Path("f").write_text("1")
    checker = ContentChecker()
    first = checker.get_state("f", None)
    assert first == checker.info("f")
    assert checker.get_state("f", first) is None
    assert not checker.check_modified("f", checker.info("f"), first)
    assert (checker.exists("f"), checker.exists("none")) == (True, False)
    with pytest.raises(ContentChecker.CheckerError):
        checker.info("none")
    with pytest.raises(FileNotFoundError):
        checker.get_state("none", None)
    loop = Path("loop")
    loop.symlink_to("loop")
    with pytest.raises(InputError, match="input `loop` cannot be read"):
        checker.info("loop")


def test_a_touched_file_is_not_read_again_and_again():
    with open("large", "wb") as file:
        file.write(os.urandom(1 << 20) * 64)
    dodo("""
    def task_t():
        return {"actions": [lambda: None], "file_dep": ["large"]}
    """)
    time.sleep(0.03)
    marks()
    os.utime("large")
    time.sleep(0.03)
    marks()
    cache = statcache.StatCache(".gputasks/stat-cache")
    state, _, first_seen = cache.get(statcache.FILES, "large")
    assert first_seen == 0
    assert state.split()[1] == str(os.stat("large").st_mtime_ns)
    written = os.stat(".gputasks/stat-cache").st_mtime_ns
    assert marks() == "-"
    assert os.stat(".gputasks/stat-cache").st_mtime_ns == written
