"""What is on the screen: real terminals of several widths, pipes, `-n` in both modes."""

from __future__ import annotations

import sys
import time

import pexpect
import pyte
import pytest

WORK = """
import gputasks as gt, sys, time
name = sys.argv[1]
for step in range(12):
    gt.progress(step=step + 1, total=12, epoch=0, max_epochs=1, loss=1 / (step + 1), **{"[red]odd": 1.0})
    time.sleep(0.1)
open("made-" + name, "w").write("1")
"""

DODO = """
def task_job():
    for name in "ab":
        yield gt.command(["python", "work.py", name], name=name, artifacts=["made-" + name])
def task_plain():
    return {"actions": ["echo from a plain task"], "verbosity": 2}
def task_bad():
    return gt.command(["sh", "-c", "echo the last words; exit 7"])
def task_boom():
    def boom():
        raise ValueError("in a plain task")
    return {"actions": [boom]}
"""

MODES = {
    "serial": (),
    "process": ("-n", "2", "-P", "process"),
    "thread": ("-n", "2", "-P", "thread"),
}


def screen_of(project, *args: str, columns: int = 80, interrupt: bool = False, **env: str):
    """Run doit in a terminal; the screen in the midst of it, at its end, and the exit code."""
    screen = pyte.Screen(columns, 50)
    stream = pyte.Stream(screen)
    child = pexpect.spawn(
        sys.executable, ["-m", "doit", "run", *args], cwd=str(project.root), dimensions=(50, columns),
        env=project.environ(TERM="xterm-256color", COLUMNS=str(columns), **env), encoding="utf-8", timeout=40,
    )  # fmt: skip
    seen: list[str] = []
    sent = False
    try:
        while True:
            try:
                stream.feed(child.read_nonblocking(65536, timeout=30))
            except pexpect.EOF:
                break
            seen.append("\n".join(screen.display))
            if interrupt and not sent and any("step" in s for s in seen):
                child.sendintr()
                sent = True
        child.close()
    finally:
        child.close(force=True)
    return (
        seen,
        "\n".join(line.rstrip() for line in screen.display).strip(),
        child.exitstatus,
        screen,
    )


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
def test_live_block_is_replaced_by_one_line_per_task(project, columns):
    project.write("work.py", WORK)
    project.dodo(DODO)
    seen, final, code, screen = screen_of(project, "job", columns=columns)
    assert code == 0, final
    assert any("step" in s for s in seen) or columns == 20
    flat = final.replace("\n", "")
    assert flat.count("job:a  succeeded") == 1, final
    assert flat.count("job:b  succeeded") == 1
    assert "[red]odd" in flat
    assert not screen.cursor.hidden
    if columns >= 80:
        assert any("█" in s or "━" in s for s in seen)
        assert "step" not in final, "the block is gone"


@pytest.mark.parametrize("mode", MODES)
def test_plain_tasks_and_errors_in_a_terminal(project, mode):
    project.write("work.py", WORK)
    project.dodo(DODO)
    _, final, code, screen = screen_of(project, "-c", *MODES[mode], "job", "plain", "bad", "boom")
    assert code == 2, final
    assert final.count("job:a  succeeded") == 1, final
    assert "from a plain task" in final
    assert "ValueError: in a plain task" in final
    assert final.count("exited with code 7") == 1, final
    assert "the last words" in final
    assert not screen.cursor.hidden


@pytest.mark.parametrize("mode", MODES)
def test_a_pipe_gets_plain_lines(project, mode):
    project.write("work.py", WORK)
    project.dodo(DODO)
    result = project.doit("run", "-c", *MODES[mode], "job", "plain", "bad", "boom", LC_ALL="C")
    assert result.returncode == 2
    text = result.stderr + result.stdout
    assert text.isascii()
    assert "\x1b" not in text
    assert "\r" not in text
    assert text.count("job:a  succeeded") == 1, text
    assert text.count("exited with code 7") == 1
    assert "ValueError: in a plain task" in text
    assert "from a plain task" in text


def test_ctrl_c_leaves_the_terminal_as_it_was(project):
    project.write("work.py", WORK.replace("0.1", "1"))
    project.dodo(DODO)
    _, final, code, screen = screen_of(project, "job:a", interrupt=True)
    assert code == 130, final
    assert not screen.cursor.hidden
    assert "stopping" in final
    assert "Traceback" not in final


def test_dumb_terminal_and_no_colour(project):
    project.write("work.py", WORK)
    project.dodo(DODO)
    child = pexpect.spawn(
        sys.executable, ["-m", "doit", "job:a"], cwd=str(project.root), timeout=40, encoding="utf-8",
        env=project.environ(TERM="dumb"),
    )  # fmt: skip
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
    assert "\x1b" not in child.before
    _, final, code, _ = screen_of(project, "job:b", NO_COLOR="1")
    assert code == 0
    assert "succeeded" in final


def test_nothing_to_do_is_quiet_and_quick(project):
    project.write("work.py", WORK)
    project.dodo(DODO)
    assert project.doit("job").returncode == 0
    began = time.monotonic()
    _, final, code, _ = screen_of(project, "job")
    assert code == 0
    assert final == "-- job:a (up to date)\n-- job:b (up to date)"
    assert time.monotonic() - began < 20
    probe = project.run(
        sys.executable,
        "-X",
        "importtime",
        "-m",
        "doit",
        "job",
        TERM="xterm",
        GPUTASKS_OUTPUT="plain",
    ).stderr
    loaded = {line.rpartition("|")[2].strip() for line in probe.splitlines() if "|" in line}
    assert not loaded & {"rich", "torch", "numpy", "docker", "requests", "asyncio"}
    assert "gputasks.errors" in loaded
