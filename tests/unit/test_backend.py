"""doit's records: kept per finished task, whatever happens."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from importlib.metadata import entry_points
from pathlib import Path, PosixPath

import pytest
from doit.dependency import JSONCodec, SqliteDB
from doit.exceptions import InvalidTask

from gputasks.doit_plugin.backend import DurableDB
from gputasks.doit_plugin.database import StateError

NAME = ".gputasks/state.db"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def opened(name=NAME):
    return DurableDB(name, JSONCodec())


def save(db, task, values=None, deps=()):
    """What doit does when a task has finished."""
    db.set(task, "_values_:", values or {})
    db.set(task, "checker:", "ContentChecker")
    for dep in deps:
        db.set(task, dep, f"blake3:{dep}")
    db.set(task, "deps:", tuple(deps))


def filled(count=300):
    db = opened()
    for number in range(count):
        save(db, f"t:{number}", {"n": number}, ["some/file.py"])
    return Path(NAME)


def doit(*args, timeout=60, check=True, **env):
    done = subprocess.run(
        [sys.executable, "-m", "doit", *args], capture_output=True, text=True, timeout=timeout,
        env={**os.environ, **env}, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert "Traceback" not in done.stdout + done.stderr
    if check:
        assert done.returncode == 0, done.stderr
    return done


def dodo(text):
    head = f"DOIT_CONFIG = {{'backend': 'gputasks', 'dep_file': {NAME!r}, 'verbosity': 0}}\n"
    Path("dodo.py").write_text(head + textwrap.dedent(text))


def test_it_is_what_doit_finds_by_name():
    (point,) = [p for p in entry_points(group="doit.BACKEND") if p.name == "gputasks"]
    assert point.load() is DurableDB


def test_its_import_loads_nothing():
    program = (
        "import sys; before = set(sys.modules); import gputasks.doit_plugin.backend;"
        "print(sorted(set(sys.modules) - before - {'__future__', 'typing'}))"
    )
    argv = [sys.executable, "-c", f"import os, typing; {program}"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(
        ["gputasks", "gputasks.doit_plugin", "gputasks.doit_plugin.backend"]
    )


def test_a_finished_task_is_on_disk_at_once():
    db = opened()
    save(db, "a", {"run": "k4"}, ["x", "y"])
    again = opened()
    assert again.get("a", "_values_:") == {"run": "k4"}
    assert again.get("a", "deps:") == ["x", "y"]
    assert again.get("a", "x") == "blake3:x"
    assert again.get("a", "none") is None
    assert again.get("b", "deps:") is None
    assert (again.in_("a"), again.in_("b")) == (True, False)
    assert (db.name, Path(".gputasks/.gitignore").read_text()) == (NAME, "*\n")


def test_doits_own_backend_reads_it():
    save(opened(), "a", {"n": 1}, ["x"])
    theirs = SqliteDB(NAME, JSONCodec())
    assert theirs.get("a", "_values_:") == {"n": 1}
    theirs.set("b", "ignore:", "1")
    theirs.dump()
    assert opened().get("b", "ignore:") == "1"


def test_reading_makes_nothing(here):
    db = opened()
    assert db.get("a", "deps:") is None
    db.check_writable()
    db.remove("a")
    db.remove_all()
    db.dump()
    assert os.listdir(here) == []


def test_removing():
    filled(10)
    db = opened()
    db.get("t:1", "deps:")
    db.remove("t:1")
    db.remove("t:2")
    assert db.get("t:1", "deps:") is db.get("t:2", "deps:") is None
    assert [opened().in_(f"t:{n}") for n in range(4)] == [True, False, False, True]
    db.remove_all()
    assert not db.in_("t:5")
    assert not opened().in_("t:5")


def test_more_tasks_than_are_looked_up_one_by_one():
    filled(50)
    db = opened()
    assert [db.get(f"t:{n}", "_values_:") for n in range(60)] == [
        {"n": n} if n < 50 else None for n in range(60)
    ]


def test_a_large_database_is_not_read_at_once(monkeypatch):
    monkeypatch.setattr("gputasks.doit_plugin.database._BULK_BYTES", 100)
    filled(20)
    db = opened()
    assert [db.get(f"t:{n}", "_values_:")["n"] for n in range(20)] == list(range(20))


def test_the_state_of_a_former_dependency_goes():
    save(opened(), "a", deps=["x", "y"])
    db = opened()
    save(db, "a", deps=["y"])
    assert opened().get("a", "x") is None
    assert opened().get("a", "y") == "blake3:y"


def test_ignore_keeps_the_record():
    save(opened(), "a", deps=["x"])
    db = opened()
    db.set("a", "ignore:", "1")
    db.dump()
    assert opened().get("a", "ignore:") == "1"
    assert opened().get("a", "x") == "blake3:x"


def test_a_save_that_broke_off_leaves_no_record():
    db = opened()
    save(db, "a")
    db.set("b", "_values_:", {"half": 1})
    db.set("b", "checker:", "C")
    db.dump()
    assert opened().in_("a")
    assert not opened().in_("b")


def test_a_value_that_is_no_json_loses_no_other_record():
    db = opened()
    save(db, "a")
    with pytest.raises(StateError, match="`b` is done but cannot be recorded: its actions return"):
        save(db, "b", {"path": PosixPath("x")})
    save(db, "c")
    db.dump()
    assert [opened().in_(t) for t in "abc"] == [True, False, True]


def half(data):
    return data[: len(data) // 2]


def garbage(_):
    return os.urandom(5000)


def holes(data):
    return data[:4096] + os.urandom(len(data) - 4096)


def text(_):
    return b"this is no database\n"


@pytest.mark.parametrize("damage", [half, garbage, holes, text])
@pytest.mark.parametrize("first", ["read", "read all", "write", "remove"])
def test_a_damaged_database_is_moved_aside_and_said(damage, first, capfd):
    file = filled()
    broken = damage(file.read_bytes())
    file.write_bytes(broken)
    db = opened()
    if first == "read":
        assert db.get("t:7", "deps:") is None
    elif first == "read all":
        assert [db.get(f"t:{n}", "deps:") for n in range(300)] == [None] * 300
    elif first == "write":
        save(db, "new")
    else:
        db.remove("t:7")
    for number in range(300):
        db.get(f"t:{number}", "deps:")
    save(db, "new")
    (aside,) = [n for n in os.listdir(".gputasks") if ".damaged-" in n]
    assert Path(".gputasks", aside).read_bytes() == broken
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith(f"warning: `{NAME}` is damaged (")
    assert (
        f"was moved to `.gputasks/{aside}`: every task will be checked against its receipt" in said
    )
    again = opened()
    assert again.in_("new")
    assert not again.in_("t:7")
    assert capfd.readouterr().err == ""


def test_an_old_journal_does_not_get_into_the_new_database():
    file = filled(50)
    journal = Path(NAME + "-journal")
    journal.write_bytes(os.urandom(2000))
    file.write_bytes(garbage(b""))
    save(opened(), "a")
    assert not journal.exists()
    assert opened().in_("a")


def test_one_unreadable_record_is_that_of_a_task_that_never_ran():
    filled(5)
    with sqlite3.connect(NAME) as connection:
        connection.execute("update doit set task_data = ? where task_id = ?", (b"{\xff", "t:1"))
        connection.execute("update doit set task_data = ? where task_id = ?", (7, "t:2"))
        connection.execute("update doit set task_data = ? where task_id = ?", ("[1]", "t:3"))
    connection.close()
    db = opened()
    assert [db.in_(f"t:{n}") for n in range(5)] == [True, False, False, False, True]


def test_an_empty_file_is_a_new_database_and_is_said_where_tasks_have_finished(capfd):
    os.makedirs(".gputasks/receipts")
    Path(NAME).touch()
    assert opened().get("a", "deps:") is None
    assert capfd.readouterr().err == ""
    Path(".gputasks/receipts/a.json").touch()
    db = opened()
    for task in "abcdef":
        assert db.get(task, "deps:") is None
    said = capfd.readouterr().err
    assert said.startswith(f"warning: `{NAME}` is empty although there are receipts")
    assert said.count("\n") == 1
    save(db, "a")
    assert opened().in_("a")


def test_several_find_the_damage_at_once():
    file = filled()
    file.write_bytes(garbage(b""))
    program = f"""
import sys
from doit.dependency import JSONCodec
from gputasks.doit_plugin.backend import DurableDB
sys.stdin.read()
db = DurableDB({NAME!r}, JSONCodec())
db.get("t:1", "deps:")
db.set(sys.argv[1], "_values_:", {{}})
db.set(sys.argv[1], "deps:", ())
"""
    children = [
        subprocess.Popen(
            [sys.executable, "-c", program, f"p:{n}"], stdin=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for n in range(4)
    ]
    for child in children:
        child.stdin.close()
    said = b"".join(child.stderr.read() for child in children)
    for child in children:
        child.stderr.close()
        assert child.wait(60) == 0
    assert said.count(b"\n") == 1
    assert len([n for n in os.listdir(".gputasks") if ".damaged-" in n]) == 1
    assert all(opened().in_(f"p:{n}") for n in range(4))


def without_power(program, *before):
    """Run as somebody who may not write everywhere, as root may."""
    argv = [*before, sys.executable, "-c", textwrap.dedent(program)]
    if os.getuid() == 0:
        argv = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search", *argv]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60)


PRELUDE = f"""
from doit.dependency import JSONCodec
from gputasks.doit_plugin.backend import DurableDB
from gputasks.doit_plugin.database import StateError
db = DurableDB({NAME!r}, JSONCodec())
def save(task):
    db.set(task, "_values_:", {{}})
    db.set(task, "deps:", ())
"""


def test_a_read_only_folder_can_be_read_and_is_named_when_written():
    filled(10)
    os.chmod(".gputasks", 0o555)
    os.chmod(NAME, 0o444)
    done = without_power(
        PRELUDE
        + """
for n in range(10):
    assert db.get(f"t:{n}", "_values_:") == {"n": n}
try:
    db.check_writable()
except StateError as error:
    print(error)
try:
    save("a")
except StateError as error:
    print(error)
db.dump()
db.remove("t:1")
try:
    DurableDB(db.name, JSONCodec()).remove("t:1")
except StateError as error:
    print(error)
"""
    )
    assert done.stdout.splitlines() == [
        f"nothing can be recorded in `{NAME}`: it is read-only",
        f"`a` is done but cannot be recorded in `{NAME}`: it is read-only",
        f"the record of `t:1` cannot be removed from `{NAME}`: it is read-only",
    ]
    assert done.stderr == (
        f"error: the record of `t:1` cannot be removed from `{NAME}`: it is read-only\n"
    )
    os.chmod(".gputasks", 0o755)


def test_a_damaged_database_in_a_read_only_folder(capfd):
    filled(10).write_bytes(garbage(b""))
    os.chmod(".gputasks", 0o555)
    done = without_power(
        PRELUDE
        + """
assert [db.get(f"t:{n}", "deps:") for n in range(10)] == [None] * 10
"""
    )
    os.chmod(".gputasks", 0o755)
    assert done.returncode == 0
    assert done.stderr.count("\n") == 1
    assert (
        "is damaged (file is not a database) and cannot be moved aside (Permission denied)"
        in done.stderr
    )


def test_a_folder_that_cannot_be_made():
    Path(".gputasks").write_text("a file")
    db = opened()
    assert db.get("a", "deps:") is None
    with pytest.raises(StateError, match="`a` is done but cannot be recorded in"):
        save(db, "a")


def test_a_full_disk_keeps_what_is_there(here):
    os.mkdir(".gputasks")
    program = (
        PRELUDE
        + """
import os
for n in range(100000):
    try:
        save(f"t:{n}")
    except StateError as error:
        print(error)
        break
    if n == 50:
        filler = os.open(".gputasks/filler", os.O_WRONLY | os.O_CREAT)
        try:
            while os.write(filler, bytes(4096)):
                pass
        except OSError:
            os.close(filler)
db.dump()
again = DurableDB(db.name, JSONCodec())
print(all(again.in_(f"t:{m}") for m in range(n)), again.in_(f"t:{n}"), n)
os.unlink(".gputasks/filler")
save(f"t:{n}")
print(DurableDB(db.name, JSONCodec()).in_(f"t:{n}"))
"""
    )
    script = 'mount -t tmpfs -o size=400k none .gputasks && exec "$0" -c "$1"'
    mount = (
        ["unshare", "--mount"] if os.getuid() == 0 else ["unshare", "--mount", "--map-root-user"]
    )
    probe = [*mount, "mount", "-t", "tmpfs", "none", ".gputasks"]
    if subprocess.run(probe, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    done = subprocess.run(
        [*mount, "sh", "-c", script, sys.executable, program],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.stderr == ""
    error, counts, after = done.stdout.splitlines()
    number = int(counts.split()[2])
    assert error == (
        f"`t:{number}` is done but cannot be recorded in `{NAME}`: no space left on the disk"
    )
    assert counts == f"True False {number}"
    assert number >= 50
    assert after == "True"


def test_a_kill_at_any_moment_loses_no_finished_task():
    program = (
        PRELUDE
        + """
import sys
for n in range(100000):
    save(f"{sys.argv[1]}:{n}")
    print(n, flush=True)
"""
    )
    for attempt in range(8):
        child = subprocess.Popen(
            [sys.executable, "-c", program, str(attempt)], stdout=subprocess.PIPE
        )
        child.stdout.readline()
        time.sleep(random.random() / 20)
        child.send_signal(signal.SIGKILL)
        last = child.stdout.read().split()
        child.stdout.close()
        child.wait()
        db = opened()
        done = int(last[-1]) if last else 0
        assert all(db.in_(f"{attempt}:{n}") for n in range(done + 1))
        assert not db.in_(f"{attempt}:{done + 2}")


def test_a_transaction_of_another_process_is_waited_for():
    filled(2)
    holder = sqlite3.connect(NAME, isolation_level=None)
    holder.execute("begin exclusive")
    program = PRELUDE + 'db.get("t:0", "deps:"); save("a"); print("saved")'
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    time.sleep(0.5)
    assert child.poll() is None
    holder.execute("commit")
    holder.close()
    assert child.communicate(timeout=30)[0] == b"saved\n"
    assert opened().in_("a")


def test_eight_doit_at_once_keep_all_records():
    dodo("""
    def task_t():
        for n in range(8):
            yield {"name": str(n), "actions": [lambda: None], "file_dep": ["dodo.py"]}
    """)
    argv = [sys.executable, "-m", "doit"]
    children = [subprocess.Popen([*argv, f"t:{n}"], stdout=subprocess.DEVNULL) for n in range(8)]
    assert [c.wait(60) for c in children] == [0] * 8
    assert all(opened().in_(f"t:{n}") for n in range(8))
    assert {line.split()[0] for line in doit("list", "-s", "--all").stdout.splitlines()[1:]} == {
        "U"
    }


def test_a_failed_task_holds_no_lock_and_has_no_record():
    dodo("""
    import os, time
    def fails():
        return not os.path.exists("fail")
    def waits():
        open("waiting", "w").close()
        while not os.path.exists("go"):
            time.sleep(0.01)
    def task_a():
        return {"actions": [fails], "file_dep": ["dodo.py"]}
    def task_b():
        return {"actions": [waits], "uptodate": [False]}
    def task_c():
        return {"actions": [lambda: None], "file_dep": ["dodo.py"]}
    """)
    doit("a")
    Path("fail").touch()
    Path("dodo.py").write_text(Path("dodo.py").read_text() + "\n")
    first = subprocess.Popen(
        [sys.executable, "-m", "doit", "-c", "a", "b"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    while not Path("waiting").exists():
        assert first.poll() is None
        time.sleep(0.01)
    assert not opened().in_("a")
    doit("c", timeout=20)
    Path("go").touch()
    first.communicate(timeout=30)
    assert first.returncode == 1
    assert [opened().in_(t) for t in "abc"] == [False, True, True]


def test_the_driver_is_killed_in_the_second_task():
    dodo("""
    import os, time
    def waits():
        open("waiting", "w").close()
        time.sleep(60)
    def task_a():
        return {"actions": [lambda: {"n": 1}], "file_dep": ["dodo.py"]}
    def task_b():
        return {"actions": [waits], "file_dep": ["dodo.py"]}
    """)
    child = subprocess.Popen([sys.executable, "-m", "doit"], stdout=subprocess.DEVNULL)
    while not Path("waiting").exists():
        assert child.poll() is None
        time.sleep(0.01)
    child.kill()
    child.wait()
    assert doit("list", "-s").stdout.split()[:4] == ["U", "a", "R", "b"]


@pytest.mark.parametrize("mode", [(), ("-n", "2"), ("-n", "2", "-P", "thread")])
def test_commands_of_doit(mode):
    dodo("""
    def task_t():
        for n in range(5):
            yield {"name": str(n), "actions": [lambda: None], "file_dep": ["dodo.py"]}
    """)
    assert [line[:3] for line in doit("run", *mode).stdout.splitlines()] == [".  "] * 5
    assert [line[:3] for line in doit("run", *mode).stdout.splitlines()] == ["-- "] * 5
    doit("forget", "t:1")
    doit("ignore", "t:2")
    listed = [line.split()[0] for line in doit("list", "-s", "--all", "-q").stdout.splitlines()]
    assert listed[1:] == ["U", "R", "I", "U", "U"]
    doit("reset-dep", "t:1")
    assert doit("info", "t:1").returncode == 0
    doit("forget", "--all")
    assert not opened().in_("t:0")


def test_what_doit_shows_when_a_record_cannot_be_kept():
    dodo("""
    import pathlib
    def task_a():
        return {"actions": [lambda: None], "file_dep": ["dodo.py"]}
    def task_b():
        return {"actions": [lambda: {"path": pathlib.Path("x")}], "file_dep": ["dodo.py"]}
    """)
    done = doit(check=False)
    assert done.returncode == 2
    assert "`b` is done but cannot be recorded: its actions return what is no JSON" in done.stdout
    assert [opened().in_(t) for t in "ab"] == [True, False]


def test_what_doit_shows_when_the_database_cannot_be_opened():
    os.makedirs(NAME)
    dodo("""
    def task_a():
        return {"actions": [lambda: None], "file_dep": ["dodo.py"]}
    """)
    done = doit("list", "-s", check=False)
    assert done.returncode == 3
    assert done.stderr == f"ERROR: `{NAME}` cannot be read: unable to open database file\n"


def test_an_error_of_the_state_is_one_that_doit_knows():
    assert issubclass(StateError, InvalidTask)
