"""The guard leaves nothing alive, whoever is killed; torch-free jobs as nasty as torchrun's."""

from __future__ import annotations

import fcntl
import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from conftest import eventually, living

from gputasks.proc import Ended, Guarded, Interrupted, Start, run_text, sweep_mark
from gputasks.proc import living as marked
from gputasks.proc.interrupts import Interrupts

NASTY = """
import os, signal, subprocess, sys, time
for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(s, signal.SIG_IGN)
sleeper = [sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(99)"]
subprocess.Popen(sleeper, start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(99)
    os._exit(0)
open("ready", "w").write("1")
time.sleep(99)
"""


@pytest.fixture
def start(tmp_path):
    """Start a job in a folder of its own, and see to it that nothing is left of it."""
    mark = f"test-{os.getpid()}-{time.monotonic_ns()}"
    (tmp_path / "job.py").write_text(NASTY)

    def begin(*argv: str, **more) -> Guarded:
        spec = {
            "argv": argv or (sys.executable, "job.py"),
            "env": {"PATH": os.environ["PATH"], "ORPHAN_TEST_MARK": mark},
            "cwd": str(tmp_path),
            "output": str(tmp_path / "out.log"),
            "mark": mark,
            "grace_s": 1.0,
            "status": str(tmp_path / "guard.json"),
        }
        return Guarded.start(Start(**{**spec, **more}))

    begin.mark, begin.folder = mark, tmp_path
    yield begin
    eventually(lambda: not living(mark), 10, what="the end of the job")
    assert marked(mark) == []


def ready(start) -> None:
    eventually(lambda: (start.folder / "ready").exists(), 20)


def ended(guard: Guarded, seconds: float = 10) -> Ended:
    found = guard.wait(seconds)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("script", "code"), [("true", 0), ("exit 3", 3), ("kill -9 $$", -9), ("kill -15 $$", -15)]
)
def test_how_a_job_ends(start, script, code):
    found = ended(start("sh", "-c", script))
    assert (found.returncode, found.stopped, found.error) == (code, "", "")
    assert json.loads((start.folder / "guard.json").read_text())["returncode"] == code


def test_environment_is_exact_and_never_on_a_command_line(start):
    guard = start(
        "sh", "-c", "env > env.txt; sleep 1", env={"SECRET": "v4lue it's\n$X", "PATH": os.environ["PATH"]}
    )  # fmt: skip
    eventually(lambda: (start.folder / "env.txt").exists(), 10)
    lines = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert "v4lue" not in lines
    assert ended(guard).returncode == 0
    text = (start.folder / "env.txt").read_text()
    assert "v4lue it's\n$X" in text
    names = {line.partition("=")[0] for line in text.splitlines() if "=" in line}
    assert names <= {"SECRET", "PATH", "GPUTASKS_RUN", "PWD", "OLDPWD", "SHLVL", "_"}


def test_what_cannot_be_started_is_told(start):
    found = ended(start("/no/such/program"))
    assert found.returncode == 127
    assert "/no/such/program" in found.error
    found = ended(start(str(start.folder)))
    assert found.returncode == 126
    found = ended(start("true", cwd="/no/such/folder"))
    assert "/no/such/folder" in found.error


def test_grace_then_kill(start):
    guard = start()
    ready(start)
    guard.stop()
    found = ended(guard)
    assert found.stopped == "terminated"
    assert 1.0 <= found.duration_s < 8
    assert found.swept >= 3


def test_a_worker_that_uses_its_grace(start):
    script = "trap 'echo saved > saved; exit 0' TERM; touch ready; while :; do sleep 0.05; done"
    guard = start("sh", "-c", script, grace_s=20.0)
    ready(start)
    guard.stop()
    found = ended(guard)
    assert (found.returncode, found.stopped) == (0, "terminated")
    assert (start.folder / "saved").exists()


def test_kill_is_at_once(start):
    guard = start(grace_s=60.0)
    ready(start)
    guard.stop()
    guard.kill()
    assert ended(guard, 5).duration_s < 20


def pids_of_guard(guard: Guarded) -> list[int]:
    with open(f"/proc/{guard.pid}/task/{guard.pid}/children") as file:
        (supervisor,) = map(int, file.read().split())
    return [guard.pid, supervisor]


@pytest.mark.parametrize("who", [(0,), (1,), (0, 1)], ids=["guardian", "supervisor", "both"])
def test_a_guard_is_killed(start, who):
    guard = start()
    ready(start)
    pids = pids_of_guard(guard)
    for index in who:
        os.kill(pids[index], signal.SIGKILL)
    assert ended(guard).stopped == "guard died"


def test_a_guard_is_told_to_stop(start):
    guard = start()
    ready(start)
    os.kill(guard.pid, signal.SIGTERM)
    assert ended(guard).stopped == "guard signalled"


def test_the_leader_of_the_job_is_killed(start):
    guard = start()
    ready(start)
    (leader,) = [p for p, line in living(start.mark).items() if "job.py" in line and os.getsid(p) == p and os.getppid() and Path(f"/proc/{p}/stat").read_text().split()[3] == str(pids_of_guard(guard)[1])]  # fmt: skip
    os.kill(leader, signal.SIGKILL)
    found = ended(guard)
    assert found.returncode == -9
    assert found.swept >= 1


DRIVER = """
import os, sys, time
sys.path.insert(0, {here!r})
from gputasks.proc import Guarded, Start
g = Guarded.start(Start(argv=(sys.executable, "job.py"), env={{"ORPHAN_TEST_MARK": {mark!r}}},
    cwd={cwd!r}, output={cwd!r} + "/out.log", mark={mark!r}, grace_s=1.0, status={status!r}))
if {fork}:
    if os.fork() == 0:
        time.sleep(30)   # holds a copy of the pipe
        os._exit(0)
print("started", flush=True)
g.wait(None)
"""


@pytest.mark.parametrize("fork", [False, True])
@pytest.mark.parametrize("status", ["", "/no/such/folder/guard.json"])
def test_the_driver_is_killed(start, fork, status):
    here = str(Path(__file__).resolve().parents[2])
    text = DRIVER.format(
        here=here, mark=start.mark, cwd=str(start.folder), status=status, fork=fork
    )
    driver = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(text)], stdout=subprocess.PIPE, start_new_session=True
    )  # fmt: skip
    ready(start)
    driver.kill()
    driver.wait()
    assert driver.stdout is not None
    driver.stdout.close()
    eventually(lambda: not living(start.mark), 8, what="the end of the job")
    if fork:
        os.killpg(driver.pid, signal.SIGKILL)


def test_a_lock_lasts_until_the_sweep_is_over(start):
    path = start.folder / "lock"
    with open(path, "w") as mine:
        fcntl.flock(mine, fcntl.LOCK_EX)
        guard = start(keep_fds=(mine.fileno(),))
        ready(start)
    with open(path) as other:
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        workers = living(start.mark)
        assert workers
        for pid in workers:
            held = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
            assert str(path) not in held
        guard.kill()
        ended(guard)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_sweep_finds_by_mark_alone(start):
    process = subprocess.Popen(["sleep", "60"], env={**os.environ, "GPUTASKS_RUN": start.mark})
    other = subprocess.Popen(["sleep", "60"], env={**os.environ, "GPUTASKS_RUN": start.mark + "x"})
    try:
        assert marked(start.mark) == [process.pid]
        assert sweep_mark(start.mark) == 1
        assert process.wait(5) == -9
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_helpers_never_raise():
    assert run_text(["no-such-helper"], timeout_s=5).returncode == 127
    assert run_text(["sh", "-c", "printf '\\377ok'; exit 4"], timeout_s=5) == (4, "\ufffdok", "")
    assert run_text(["sleep", "9"], timeout_s=0.1).returncode == 124
    assert run_text(["cat"], timeout_s=5, input="in").out == "in"
    assert run_text(["cat"], timeout_s=5).out == ""


def test_interrupted_survives_doits_queue():
    error = Interrupted(signal.SIGTERM)
    assert error.code == 143
    assert type(error)(str(error)).code == 143
    assert pickle.loads(pickle.dumps(error)).code == 143


SIGNALLED = """
import os, signal, sys, time
sys.path.insert(0, {here!r})
from gputasks.proc import Interrupted, interrupts
interrupts.install()
print("ready", flush=True)
try:
    if {deferred}:
        with interrupts.deferred():
            while not interrupts.urgent:
                time.sleep(0.01)
            print("urgent", interrupts.requested, flush=True)
        sys.exit(128 + interrupts.requested)
    time.sleep(20)
except Interrupted as error:
    print("raised", error.code, flush=True)
    raise
"""


def signalled(deferred: bool, *signals: int, ignore: bool = False) -> tuple[int, str]:
    here = str(Path(__file__).resolve().parents[2])
    script = SIGNALLED.format(here=here, deferred=deferred)
    trap = "trap '' INT; " if ignore else ""
    with subprocess.Popen(
        ["sh", "-c", f'{trap}exec "$@"', "sh", sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        stderr=subprocess.STDOUT,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for signum in signals:
            time.sleep(0.1)
            process.send_signal(signum)
        text = process.communicate(timeout=20)[0]
        return process.returncode, text


def test_signals_raise_once_or_are_noted():
    assert signalled(False, signal.SIGTERM) == (143, "raised 143\n")
    assert signalled(True, signal.SIGINT, signal.SIGINT) == (130, "urgent 2\n")
    # Another signal is no second request; the same one is.
    assert signalled(True, signal.SIGINT, signal.SIGTERM, signal.SIGTERM) == (130, "urgent 2\n")
    # `doit &` in a script starts with SIGINT ignored, and means it.
    assert signalled(False, signal.SIGINT, signal.SIGHUP, ignore=True) == (129, "raised 129\n")


def test_a_forked_child_starts_anew():
    mine = Interrupts()
    mine.requested, mine.urgent = 15, True
    mine.reset()
    assert (mine.requested, mine.urgent) == (None, False)
