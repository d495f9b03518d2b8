"""`runtime="inline"`: a script in doit's own process, which gets everything of its own back."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest
from conftest import eventually

DODO = """
def task_train():
    return gt.train("src/train.py", runtime="inline", params={{"lr": 0.1}}, artifacts=["out"], {more})
"""


def inline(project, script, more=""):
    project.write("src/train.py", script)
    project.dodo(DODO.format(more=more))


def record(project):
    return json.loads((project.root / ".gputasks/runs/train/latest/run.json").read_text())


def log(project):
    return (project.root / ".gputasks/runs/train/latest/attempt-0/rank-0.log").read_text()


def test_it_runs_in_the_process_of_doit_and_leaves_no_trace_in_it(project):
    project.write("src/helper.py", "NAME = 'mine'\n")
    project.write("other/helper.py", "NAME = 'the other'\n")
    inline(
        project,
        """\
        import json, os, sys
        import gputasks, helper
        print(sys.argv, helper.NAME, os.environ["KEY"], os.environ["CUDA_VISIBLE_DEVICES"] == "")
        print(json.load(open(os.environ["GPUTASKS_PARAMS"])), file=sys.stderr)
        gputasks.progress(step=3, total=3, loss=0.25)
        open("out", "w").write(str(os.getppid()) + " " + str(os.getpid()))
        os.environ["LEFT"] = "1"
        os.chdir("/")
        sys.path.insert(0, "/left")
        """,
        more='env={"KEY": "value"}',
    )
    project.write("other/train.py", "import helper, os, sys\nassert helper.NAME == 'the other'\n"
                  "assert 'LEFT' not in os.environ and '/left' not in sys.path\nopen('out2', 'w').write('1')\n")  # fmt: skip
    with open(project.root / "dodo.py", "a") as dodo:
        dodo.write(
            "def task_z():\n"
            '    return gt.train("other/train.py", runtime="inline", artifacts=["out2"], file_dep=["out"])\n'
        )
    process = project.start("z")
    assert process.wait(30) == 0, project.output(process)
    assert (project.root / "out").read_text().split()[1] == str(process.pid)
    assert "['src/train.py', '--lr', '0.1'] mine value True" in log(project)
    assert "{'lr': 0.1}" in log(project)
    assert record(project)["metrics"] == {"loss": 0.25}
    assert "up to date" in project.doit("z").stderr


@pytest.mark.parametrize(
    ("script", "texts"),
    [
        ("def work():\n    raise ValueError('no such layer')\nwork()\n", ["ValueError: no such layer", "src/train.py:2"]),
        ("import sys\nsys.exit(3)\n", ["exited with code 3"]),
        ("import sys\nsys.exit('not today')\n", ["exited with code 1", "not today"]),
        ("print('nothing made')\n", ["declared `out` is missing"]),
        ("x = (\n", ["src/train.py"]),
    ],
)  # fmt: skip
def test_failures(project, script, texts):
    inline(project, script)
    result = project.doit()
    assert result.returncode in (1, 3)
    for text in texts:
        assert text in result.stderr, result.stderr
    assert "Traceback" not in result.stderr.replace("    Traceback", "")


def test_max_duration(project):
    inline(project, "import time\ntime.sleep(60)\n", more='max_duration="1s"')
    began = time.monotonic()
    result = project.doit()
    assert result.returncode == 1
    assert "timed out after 1s" in result.stderr
    assert time.monotonic() - began < 20
    assert record(project)["outcome"] == "timed_out"


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("handles", [False, True])
def test_signals(project, signum, handles):
    handler = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))" if handles else ""
    inline(
        project,
        f"""\
        import signal, subprocess, sys, time
        {handler}
        subprocess.Popen(["sleep", "60"])
        try:
            open("ready", "w").write("1")
            time.sleep(60)
        finally:
            open("tidied", "w").write("1")
        """,
    )
    process = project.start()
    eventually((project.root / "ready").exists, 20, what=project.output(process))
    os.kill(process.pid, signum)
    assert process.wait(20) == 128 + signum, project.output(process)
    assert (project.root / "tidied").exists()
    assert record(project)["outcome"] == "interrupted"
    project.gone()


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ("resources=gt.Resources(gpu_count=2)", "`gpu_count=2` may be more"),
        ('resources=gt.Resources(gpu_count="auto")', "`gpu_count='auto'` may be more"),
        ("nproc_per_node=2", "`nproc_per_node` more"),
        ('image="a:1"', '`image` of `gt.train` needs `runtime="isolated"`'),
        ('python="/usr/bin/python3"', '`python` of `gt.train` needs `runtime="isolated"`'),
        ("retries=1", '`retries` of `gt.train` needs `runtime="isolated"`'),
    ],
)
def test_what_one_process_cannot_have(project, keys, text):
    inline(project, "", more=keys)
    result = project.doit()
    assert result.returncode == 3
    assert text in result.stderr, result.stderr


def test_a_program_and_a_thread_are_refused(project):
    project.dodo('def task_it():\n    return gt.command(["true"], runtime="inline")\n')
    assert "starts a program, which is a process of its own" in project.doit().stderr
    inline(project, "open('out', 'w').write('1')\n")
    result = project.doit("-n", "2", "-P", "thread")
    assert result.returncode == 2
    assert "needs the main thread" in result.stderr
    assert project.doit("-n", "2", "-P", "process").returncode == 0
