"""No orphans: whatever way the driver, the guard, the launcher or a worker ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pexpect
import pytest
from conftest import eventually

STUBBORN = """\
import os, signal, subprocess, sys, time
rank = os.environ["RANK"]
for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(s, signal.SIG_IGN)
# A data loader in a session of its own, and a daemon that nobody waits for.
subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(300)"], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(300)
    os._exit(0)
os.makedirs("ckpt", exist_ok=True)
open("ckpt/part-" + rank, "w").write("x")
open(os.environ["READY"] + "-" + os.environ["NAME"] + "-" + rank, "w").write(str(os.getpid()))
time.sleep(300)
"""

DODO = """
import os
def task_a():
    return gt.train("train.py", python={python!r}, nproc_per_node=2, artifacts=["ckpt"],
                    env={{"READY": os.path.abspath("ready"), "NAME": "a"}},
                    stop_grace="1s", resources=gt.Resources(gpu_count=0))
def task_b():
    return gt.train("train.py", python={python!r}, nproc_per_node=2, artifacts=["ckpt-b"],
                    env={{"READY": os.path.abspath("ready"), "NAME": "b"}},
                    stop_grace="1s", resources=gt.Resources(gpu_count=0))
"""

MODES = {
    "serial": ("a",),
    "process": ("-n", "2", "-P", "process", "a", "b"),
    "thread": ("-n", "2", "-P", "thread", "a", "b"),
}


def begin(project, python, mode):
    project.write("train.py", STUBBORN)
    project.dodo(DODO.format(python=python))
    process = project.start("run", *MODES[mode])
    names = ("a",) if mode == "serial" else ("a", "b")
    wanted = [project.root / f"ready-{n}-{r}" for n in names for r in (0, 1)]
    eventually(
        lambda: all(p.exists() and p.read_text() for p in wanted), 30, what=project.output(process)
    )
    return process


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_driver_is_signalled(project, fake_python, mode, signum):
    process = begin(project, fake_python, mode)
    os.kill(process.pid, signum)
    code = process.wait(20)
    project.gone(10)
    expected = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGKILL: -9}
    assert code == expected[signum], project.output(process)
    assert "Traceback" not in project.output(process)
    if signum != signal.SIGKILL:
        record = json.loads((project.root / ".gputasks/runs/a/latest/run.json").read_text())
        assert record["outcome"] == "interrupted"
        assert not (project.root / "ckpt").exists(), "nothing half-made stays at its path"
    assert project.doit("list", "-s").stdout.startswith("R a")
    # The next run can take everything over at once.
    project.write(
        "train.py",
        "import os\nos.makedirs('ckpt', exist_ok=True)\nopen('ckpt/x', 'w').write('1')\n",
    )
    assert project.doit("a").returncode == 0


def find(project, *words):
    return [pid for pid, line in project.living().items() if all(w in line for w in words)]


@pytest.mark.parametrize("victim", ["guard.py", "torch.distributed.run", "worker"])
def test_one_of_ours_is_killed(project, fake_python, victim):
    process = begin(project, fake_python, "serial")
    if victim == "worker":
        pids = [int((project.root / "ready-a-1").read_text())]
    else:
        pids = find(project, victim) or guards(process.pid)
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    assert process.wait(45) == 1, project.output(process)
    project.gone(10)
    output = project.output(process)
    assert "Traceback" not in output
    if victim == "worker":
        assert "rank 1" in output
        assert "SIGKILL" in output


def guards(driver):
    """Guards carry no mark of the test in their environment: they are the driver's children."""
    found = []
    for task in Path(f"/proc/{driver}/task").iterdir():
        for child in (task / "children").read_text().split():
            if b"guard" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(int(child))
                for t in Path(f"/proc/{child}/task").iterdir():
                    found += [int(c) for c in (t / "children").read_text().split()]
    return found


def test_ctrl_c_gives_time_for_a_checkpoint_and_the_next_run_resumes(project, fake_python):
    project.write(
        "train.py",
        """\
        import os, signal, sys, time
        sys.path.insert(0, ".")
        import pickle
        resume = sys.argv[sys.argv.index("--ckpt") + 1] if "--ckpt" in sys.argv else None
        os.makedirs("ckpt", exist_ok=True)
        if resume:
            assert pickle.load(open(resume, "rb")) == "at stop"
            assert resume == os.environ["GPUTASKS_RESUME_CKPT"]
            open("ckpt/done.txt", "w").write("resumed, best is " + open("ckpt/best.txt").read())
            sys.exit(0)
        open("ckpt/best.txt", "w").write("epoch 1")
        def stop(*_):
            pickle.dump("at stop", open("ckpt/last.ckpt", "wb"))
            sys.exit(0)
        signal.signal(signal.SIGTERM, stop)
        open("ready", "w").write("1")
        time.sleep(60)
    """,
    )
    project.dodo(f"""
        def task_train():
            return gt.train("train.py", python={fake_python!r}, args=["--ckpt", "{{resume}}"],
                            artifacts=["ckpt"], resources=gt.Resources(gpu_count=0))
    """)
    process = project.start()
    eventually(lambda: (project.root / "ready").exists(), 20)
    time.sleep(0.2)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(20) == 130, project.output(process)
    assert "stopping" in project.output(process)
    assert not (project.root / "ckpt").exists()
    result = project.doit()
    assert result.returncode == 0, result.stderr
    assert "resuming from `ckpt/last.ckpt`" in result.stderr
    assert (project.root / "ckpt/done.txt").read_text() == "resumed, best is epoch 1"


def test_half_written_checkpoint_is_passed_over(project, fake_python):
    project.write(
        "train.py",
        """\
        import os, sys, time, zipfile
        os.makedirs("ckpt", exist_ok=True)
        if "--ckpt" in sys.argv:
            open("ckpt/from.txt", "w").write(sys.argv[-1])
            sys.exit(0)
        def save(name):
            with zipfile.ZipFile(name, "w") as z:
                z.writestr("data", b"x" * 100000)
        save("ckpt/good.ckpt")
        time.sleep(0.05)
        save("ckpt/last.ckpt")
        os.truncate("ckpt/last.ckpt", 5000)
        open("ready", "w").write("1")
        time.sleep(60)
    """,
    )
    project.dodo(f"""
        def task_train():
            return gt.train("train.py", python={fake_python!r}, args=["--ckpt", "{{resume}}"], stop_grace="1s",
                            artifacts=["ckpt"], resources=gt.Resources(gpu_count=0))
    """)
    process = project.start()
    eventually(lambda: (project.root / "ready").exists(), 20)
    process.kill()
    process.wait()
    result = project.doit()
    assert result.returncode == 0, result.stderr
    assert "`ckpt/last.ckpt` is truncated" in result.stderr
    assert (project.root / "ckpt/from.txt").read_text().endswith("ckpt/good.ckpt")


def test_second_ctrl_c_kills_at_once_and_the_terminal_is_sane(project, fake_python):
    project.write("train.py", STUBBORN)
    project.dodo(DODO.format(python=fake_python).replace('stop_grace="1s"', 'stop_grace="60s"'))
    child = pexpect.spawn(
        sys.executable, ["-m", "doit", "a"], cwd=str(project.root), env=project.environ(TERM="xterm"),
        encoding="utf-8", codec_errors="replace", dimensions=(24, 100), timeout=30,
    )  # fmt: skip
    try:
        eventually(lambda: (project.root / "ready-a-1").exists(), 30)
        time.sleep(0.5)
        child.sendintr()
        child.expect("stopping")
        began = time.monotonic()
        time.sleep(0.3)
        child.sendintr()
        child.expect(pexpect.EOF)
        child.close()
        assert time.monotonic() - began < 10
        assert child.exitstatus == 130, child.before
        hidden, shown = child.before.rfind("\x1b[?25l"), child.before.rfind("\x1b[?25h")
        assert shown > hidden or hidden == -1
    finally:
        child.close(force=True)
    project.gone()


def test_chained_shell_commands_stop(project, fake_python):
    project.write("train.py", STUBBORN)
    project.dodo(DODO.format(python=fake_python))
    process = subprocess.Popen(
        ["bash", "-c", f"'{sys.executable}' -m doit a && touch after"], cwd=project.root,
        env=project.environ(), start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    eventually(lambda: (project.root / "ready-a-1").exists(), 30)
    os.killpg(process.pid, signal.SIGINT)
    process.wait(20)
    assert not (project.root / "after").exists()
    project.gone()


def test_finished_work_survives_the_death_of_the_driver(project, fake_python):
    for signum in (signal.SIGKILL, signal.SIGTERM):
        project.write("train.py", STUBBORN)
        project.dodo(
            DODO.format(python=fake_python).replace(
                'artifacts=["ckpt"]', 'artifacts=["ckpt"], file_dep=["prep"]'
            )
            + '\ndef task_prep():\n    return gt.command(["sh", "-c", "echo 1 > prep"], artifacts=["prep"])\n'
        )
        process = project.start("a")
        eventually(lambda: (project.root / "ready-a-1").exists(), 30)
        os.kill(process.pid, signum)
        process.wait(20)
        project.gone()
        for ready in project.root.glob("ready*"):
            ready.unlink()
        result = project.doit("prep")
        assert "up to date" in result.stderr


def test_what_outlived_even_the_guards_is_ended_by_the_next_run(project, fake_python):
    process = begin(project, fake_python, "serial")
    for pid in [process.pid, *find(project, "guard.py")]:
        os.kill(pid, signal.SIGSTOP)  # nobody can react to the death of the others
    for pid in [process.pid, *find(project, "guard.py")]:
        os.kill(pid, signal.SIGKILL)
    process.wait(10)
    assert find(project, "train.py"), "the workers live on"
    project.write(
        "train.py",
        "import os\nos.makedirs('ckpt', exist_ok=True)\nopen('ckpt/x', 'w').write('1')\n",
    )
    result = project.doit("a")
    assert result.returncode == 0, result.stderr
    assert "were still alive, and were ended" in result.stderr
    project.gone(5)
