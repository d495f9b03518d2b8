"""The live block in terminals that differ, and what else is written into them."""

from __future__ import annotations

import re
import sys
import termios

import pytest
from conftest import eventually
from screens import Terminal

WORK = """\
import gputasks as gt, os, sys, time
name = sys.argv[1]
step = 0
while not os.path.exists("go"):
    step += 1
    print(f"\\r{step}%", end="", file=sys.stderr)
    gt.progress(step=step, total=1000, epoch=0, max_epochs=1, loss=1 / step, val_acc=0.5, **{"[red]odd": 1.0})
    time.sleep(0.05)
"""

DODO = """
def task_job():
    for name in "ab":
        yield gt.command(["python", "work.py", name], name=name, stop_grace="2s")
"""

MODES = {
    "serial": (),
    "process": ("-n", "2", "-P", "process"),
    "thread": ("-n", "2", "-P", "thread"),
}
BLOCK = "━─⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏▁▂▃▄▅▆▇█"
ALLOWED = {"\x1b[K", "\x1b[J", "\x1b[1m", "\x1b[2m", "\x1b[36m", "\x1b[0m"}


@pytest.fixture
def work(project):
    project.write("work.py", WORK)
    project.dodo(DODO)
    return project


def titles(text: str) -> list[str]:
    return re.findall(r"(?m)^(job:\w)  runs  \d+s", text)


@pytest.mark.parametrize("reflow", [False, True], ids=["cuts lines", "breaks lines anew"])
@pytest.mark.parametrize("columns", [40, 80, 200])
def test_a_block_stands_once_whatever_becomes_of_the_window(work, columns, reflow):
    with Terminal(work, "-n", "2", "-P", "thread", "job", columns=columns) as terminal:
        terminal.until("job:a  runs  ", "job:b  runs  ", "loss")
        for size in (columns // 2, columns, columns + 30, 30, columns):
            terminal.resize(size, reflow=reflow)
            terminal.redrawn()
            text = terminal.until("job:a  runs  ", "job:b  runs  ")
            assert sorted(titles(text)) == ["job:a", "job:b"], text
            assert text.count("loss") == 2, text
            assert max(map(len, text.splitlines())) <= size
        (work.root / "go").touch()
        text = terminal.end()
        assert terminal.code == 0, text
        assert not titles(text)
        assert not set(BLOCK) & set(text)


def test_a_window_of_few_rows(work):
    with Terminal(work, "-n", "2", "-P", "thread", "job", columns=60, rows=5) as terminal:
        terminal.until("job:a  runs  ", "job:b  runs  ")
        terminal.redrawn(5)
        assert len(titles(terminal.text)) == 2
        terminal.resize(60, rows=3)
        terminal.redrawn(3)
        (work.root / "go").touch()
        assert "succeeded" in terminal.end()


@pytest.mark.parametrize("term", ["xterm-256color", "screen", "tmux-256color", "vt100"])
def test_only_what_every_terminal_knows(work, term):
    with Terminal(work, "job:a", TERM=term) as terminal:
        terminal.until("loss")
        (work.root / "go").touch()
        terminal.end()
        assert terminal.code == 0
        escapes = set(re.findall(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|.)", terminal.raw))
        assert {e for e in escapes if not re.fullmatch(r"\x1b\[\d+A", e)} <= ALLOWED


def test_no_colour(work):
    with Terminal(work, "job:a", NO_COLOR="1") as terminal:
        terminal.until("━", "loss")
        (work.root / "go").touch()
        terminal.end()
        assert not re.search(r"\x1b\[[\d;]*m", terminal.raw)


def test_a_locale_that_knows_ascii_only(work):
    with Terminal(work, "job:a", LC_ALL="C") as terminal:
        text = terminal.until("#...", "loss")
        assert re.search(r"loss \S+ #[_.*=#-]+ ", text), text
        (work.root / "go").touch()
        terminal.end()
        assert terminal.raw.isascii()


def test_a_narrower_width_may_be_wished(work):
    with Terminal(work, "job:a", columns=80, COLUMNS="20") as terminal:
        terminal.until("loss")
        terminal.redrawn()
        block = terminal.text[terminal.text.index("job:a  runs  ") :]
        assert max(map(len, block.splitlines())) <= 19
        (work.root / "go").touch()
        assert "succeeded" in terminal.end()


@pytest.mark.parametrize("mode", MODES)
def test_ctrl_c_leaves_the_terminal_as_it_was(work, mode):
    with Terminal(work, *MODES[mode], "job") as terminal:
        before = termios.tcgetattr(terminal.child.child_fd)
        terminal.until("loss")
        terminal.interrupt()
        text = terminal.end(before_close=lambda fd: termios.tcgetattr(fd) == before)
        assert terminal.code == 130, text
        assert terminal.checked, "the modes of the terminal are other ones"
        assert not titles(text)
        assert not set(BLOCK) & set(text)
        assert "stopping: SIGTERM sent" in text
        assert re.search(r"job:a  interrupted in \d+s · log: \.gputasks/runs/job:a/", text)
        assert "\x1b[?25l" not in terminal.raw
        assert terminal.screen.cursor.x == 0
        assert "Traceback" not in text


STUBBORN = """\
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
import gputasks as gt
for step in range(1000):
    gt.progress(step=step, total=1000, loss=0.5)
    time.sleep(0.1)
"""


@pytest.mark.parametrize("mode", MODES)
def test_a_second_ctrl_c_kills_at_once(project, mode):
    project.write("work.py", STUBBORN)
    project.dodo(DODO.replace("2s", "1h"))
    with Terminal(project, *MODES[mode], "job:a") as terminal:
        terminal.until("loss")
        terminal.interrupt()
        terminal.until("stopping: SIGTERM sent")
        terminal.interrupt()
        text = terminal.end()
        assert terminal.code == 130, text
        assert not titles(text)
        assert not set(BLOCK) & set(text)
        assert "job:a  interrupted" in text
        assert "Traceback" not in text
    project.gone()


def test_bars_of_others_stay_in_the_log_as_they_are(work):
    with Terminal(work, "job:a") as terminal:
        terminal.until("step 9/")
        (work.root / "go").touch()
        terminal.end()
        assert "%" not in terminal.raw
    log = (work.root / ".gputasks/runs/job:a/latest/attempt-0/output.log").read_bytes()
    assert log.startswith(b"\r1%\r2%\r3%")


PLAIN = """
import sys, time
def asks():
    print("what is this")
    sys.stdout.write("name? ")
    sys.stdout.flush()
    time.sleep(0.5)
    sys.stdout.write("me\\n")
def task_asks():
    return {"actions": [asks], "verbosity": 2}
def task_own():
    return {"actions": ["printf 'half a '; sleep 0.5; echo line; tty > tty.txt"], "io": {"capture": False}}
"""


def test_lines_of_plain_tasks_stay_whole(work):
    work.dodo(DODO + PLAIN)
    with Terminal(work, "asks", "own") as terminal:
        text = terminal.end()
        assert terminal.code == 0, text
        assert text.splitlines() == [
            "asks  runs", "what is this", "name? me", "asks  succeeded in 1s",
            "own  runs", "half a line", "own  succeeded in 1s",
        ]  # fmt: skip
        assert all("name? asks" not in frame for frame in terminal.frames)


def test_lines_of_plain_tasks_go_above_the_block_of_others(work):
    work.dodo(DODO + PLAIN)
    with Terminal(work, "-n", "2", "-P", "thread", "job:a", "asks") as terminal:
        terminal.until("asks  succeeded", "job:a  runs  ")
        terminal.redrawn()
        lines = terminal.text.splitlines()
        assert "what is this" in lines
        assert "name? me" in lines
        assert lines.index("name? me") < next(
            i for i, line in enumerate(lines) if line.startswith("job:a  runs  ")
        )
        (work.root / "go").touch()
        terminal.end()
        assert terminal.code == 0


FORKS = """
import multiprocessing, os, subprocess, time
def child():
    print("from a child")
def forks():
    for _ in range(3):
        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        process.join()
    subprocess.run(["sh", "-c", "printf 'past '; sleep 0.5; echo doit"])
def task_forks():
    return {"actions": [forks], "verbosity": 2}
"""


def test_programs_that_plain_tasks_start_meet_no_block(work):
    work.dodo(FORKS)
    with Terminal(work, "forks") as terminal:
        text = terminal.end()
        assert terminal.code == 0, text
        assert text.count("from a child") == 3
        assert "past doit" in text.splitlines()


def test_a_forked_child_prints_while_a_block_stands(work):
    work.dodo(DODO + FORKS)
    with Terminal(work, "-n", "2", "-P", "thread", "job:a", "forks") as terminal:
        terminal.until("forks  succeeded", "job:a  runs  ")
        assert terminal.text.count("from a child") == 3
        (work.root / "go").touch()
        terminal.end()
        assert terminal.code == 0


def test_in_the_background_of_a_shell_there_is_no_block(work):
    with Terminal(work, program=["bash", "--norc", "-i"]) as terminal:
        terminal.child.sendline(f"{sys.executable} -m doit job:a & wait; echo the-$((1+1))nd")
        terminal.until("job:a  runs: ")
        terminal.child.sendline("")
        log = work.root / ".gputasks/runs/job:a/latest/attempt-0/output.log"
        eventually(lambda: log.exists() and "20%" in log.read_text(), 20)
        (work.root / "go").touch()
        text = terminal.until("the-2nd")
        assert "job:a  succeeded" in text
        assert not titles("\n".join(terminal.frames))
