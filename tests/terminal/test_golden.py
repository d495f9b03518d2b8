"""What people see, as text: each situation in a terminal and in a pipe.

The texts are in `golden/`; `GOLDEN=write pytest tests/terminal/test_golden.py` writes them anew.
Times, run ids, names of machines and paths are made alike.
"""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
from conftest import eventually
from screens import Terminal

from gputasks.testing import fake_nvidia_smi

GOLDEN = Path(__file__).with_name("golden")

TRAIN = """\
import os, sys, time
from gputasks_worker.progress import progress
rank = int(os.environ.get("RANK", "0"))
name = sys.argv[1] if len(sys.argv) > 1 else "train"

def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.02)

if rank == 0:
    for step, loss in enumerate([0.9, 0.5, 0.7, 0.2], 1):
        time.sleep(0.25)
        progress(step=step, total=8, epoch=step // 4, max_epochs=2, loss=loss, val_acc=1 - loss)
open(f"ready-{name}-{rank}", "w").close()
wait_for(f"go-{name}")
"""

KEEP = """\
if rank == 0:
    progress(step=8, total=8, epoch=2, max_epochs=2, loss=0.125, val_acc=0.9375)
    os.makedirs("ckpt", exist_ok=True)
    open("ckpt/best.bin", "w").write("x" * 2048)
"""

FAIL = """\
for percent in range(0, 101, 5):
    print(f"\\r{percent:3}%|" + "#" * (percent // 5), end="", file=sys.stderr)
print("\\nthe data is odd", file=sys.stderr)
if rank == 1:
    raise ValueError("a bad batch")
time.sleep(60)
"""

SAME = [
    (r"\b\d\d:\d\d:\d\d\b", "12:00:00"),
    (r"(?<=runs/train/)[^/\s]+", "RUN"),
    (r"\brun \w{4}\b", "run RUN"),
    (r"pid \d+", "pid 42"),
    (r"\b\d+(\.\d+)? it/s", "4 it/s"),
    (r"eta \d+s", "eta 1s"),
    (r"(?m)(  (?:trains|runs|waits|starts)  )\d+s", r"\g<1>5s"),
    (r"( in )\d+s", r"\g<1>5s"),
    ("[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]", "⠋"),
    (re.escape(os.uname().nodename), "hal"),
]


class Pipe:
    """As `Terminal`, for somebody who reads a file."""

    def __init__(self, project, *args: str, columns: int = 0, **env: str) -> None:
        self.project = project
        self.process = project.start("run", *args, **env)

    @property
    def text(self) -> str:
        return self.project.output(self.process)

    def until(self, *_: str, **__: object) -> str:
        return self.text

    def interrupt(self) -> None:
        os.kill(self.process.pid, signal.SIGINT)

    def end(self) -> str:
        self.process.wait(40)
        return self.text

    @property
    def code(self) -> int:
        return self.process.returncode

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Stage:
    """A project, and how doit is looked at."""

    def __init__(self, project, python: str, kind: str) -> None:
        self.project = project
        self.python = python
        self.kind = kind
        self.said: list[str] = []

    def run(self, *args: str, columns: int = 80):
        kind = Terminal if self.kind == "pty" else Pipe
        return kind(self.project, *args, columns=columns)

    def there(self, *names: str) -> None:
        """Wait for files of the workers."""
        for name in names:
            eventually(lambda name=name: (self.project.root / name).exists(), 30, what=name)

    def go(self, name: str = "train") -> None:
        (self.project.root / f"go-{name}").touch()

    def midst(self, text: str) -> None:
        """What is seen while it runs; in a pipe the end says it all."""
        if self.kind == "pty":
            self.said.append(f"--- while it runs\n{text}\n")

    def end(self, run, code: int) -> None:
        text = run.end().strip("\n")
        assert run.code == code, text
        self.said.append(f"--- in the end, exit code {code}\n{text}\n")

    def train(self, *, script: str = TRAIN + KEEP, more: str = "") -> None:
        """A training of two ranks."""
        self.project.write("train.py", script)
        self.project.dodo(f"""
            def task_train():
                return gt.train("train.py", python={self.python!r}, artifacts=["ckpt"],
                                nproc_per_node=2, {more})
        """)


def success(stage: Stage) -> None:
    stage.train(more='params={"lr": 0.1}, params_style="none"')
    with stage.run("train") as run:
        stage.there("ready-train-0", "ready-train-1")
        stage.midst(run.until("step 4/8", "loss 0.2"))
        stage.go()
        stage.end(run, 0)


def failure_of_a_rank(stage: Stage) -> None:
    stage.train(script=TRAIN + FAIL, more='stop_grace="1s"')
    stage.go()
    with stage.run("train", columns=200) as run:
        stage.end(run, 1)


def up_to_date(stage: Stage) -> None:
    stage.train()
    stage.go()
    assert stage.project.doit().returncode == 0
    with stage.run("train") as run:
        stage.end(run, 0)


def waits_for_a_gpu(stage: Stage) -> None:
    project = stage.project
    smi = project.root.parent / "smi"
    fake_nvidia_smi(str(smi), ["GPU-aaaa"], usage={"GPU-aaaa": (87, 12595)})
    project.env["PATH"] = f"{smi}:{os.environ['PATH']}"
    project.write("train.py", TRAIN + KEEP)
    project.write("hold.py", "import os, time\nopen('held', 'w').close()\nwhile not os.path.exists('let-go'):\n    time.sleep(0.02)\n")  # fmt: skip
    project.dodo(f"""
        def task_hold():
            return gt.command(["python", "hold.py"], resources=gt.Resources(gpu_count=1))
        def task_train():
            return gt.train("train.py", python={stage.python!r}, artifacts=["ckpt"])
    """)
    holder = project.start("hold")
    stage.there("held")
    with stage.run("train", columns=160) as run:
        eventually(lambda: "waiting for 1 free" in run.until("waiting for 1 free"), 20)
        stage.midst(run.until("waits", "⠋ waiting for 1 free") if stage.kind == "pty" else "")
        (project.root / "let-go").touch()
        assert holder.wait(20) == 0
        stage.there("ready-train-0")
        stage.midst(run.until("step 4/8", "gpu 0 87%"))
        stage.go()
        stage.end(run, 0)


def interrupted(stage: Stage) -> None:
    stage.train(more='stop_grace="2s"')
    with stage.run("train") as run:
        stage.there("ready-train-0", "ready-train-1")
        run.until("step 4/8")
        run.interrupt()
        stage.end(run, 130)


def two_tasks_at_once(stage: Stage, mode: str = "thread") -> None:
    stage.project.write("train.py", TRAIN)
    stage.project.dodo("""
        def task_job():
            for name in "ab":
                yield gt.command(["python", "train.py", name], name=name, file_dep=["train.py"])
    """)
    with stage.run("-n", "2", "-P", mode, "job") as run:
        stage.there("ready-a-0", "ready-b-0")
        both = ("job:a  runs  ", "job:b  runs  ")
        stage.midst(run.until(*both, unwanted="step 3/8"))
        # Which of the two is told first is left to the threads of doit.
        first, second = "ab" if run.text.index("job:a") < run.text.index("job:b") else "ba"
        stage.go(first)
        eventually(lambda: f"job:{first}  succeeded" in run.until(f"job:{first}  succeeded"), 20)
        stage.go(second)
        stage.end(run, 0)
    if first == "b":
        swap = str.maketrans("ab", "ba")
        stage.said = [
            re.sub("(?<=job:)[ab]", lambda m: m[0].translate(swap), t) for t in stage.said
        ]


def two_tasks_in_processes(stage: Stage) -> None:
    two_tasks_at_once(stage, "process")


def beside_a_plain_task(stage: Stage) -> None:
    stage.project.write("train.py", TRAIN)
    stage.project.dodo("""
        def task_plain():
            return {"actions": ["echo from a plain task"], "verbosity": 2}
        def task_quiet():
            return {"actions": ["echo nobody sees this"]}
        def task_ours():
            return gt.command(["python", "train.py"], file_dep=["train.py"])
        def task_broken():
            return {"actions": ["printf 'the last words\\\\n1 of 9\\\\r9 of 9' && false"]}
    """)
    stage.go()
    with stage.run("-c", "plain", "quiet", "ours", "broken") as run:
        stage.end(run, 1)


def sizes(stage: Stage) -> None:
    """One training in a window that somebody pulls at."""
    stage.train()
    with stage.run("train", columns=30) as run:
        stage.there("ready-train-0", "ready-train-1")
        run.until("step 4/8")
        for columns in (30, 40, 80, 200):
            run.resize(columns)
            run.redrawn()
            text = run.until("step 4/8")
            stage.said.append(f"--- {columns} columns\n{text}\n")
        stage.go()
        run.end()


def ascii_only(stage: Stage) -> None:
    stage.train()
    with Terminal(stage.project, "train", LC_ALL="C") as run:
        stage.there("ready-train-0", "ready-train-1")
        stage.midst(run.until("step 4/8", "loss 0.2"))
        stage.go()
        stage.end(run, 0)


SITUATIONS = [
    success,
    failure_of_a_rank,
    up_to_date,
    waits_for_a_gpu,
    interrupted,
    two_tasks_at_once,
    two_tasks_in_processes,
    beside_a_plain_task,
]


def alike(text: str, project) -> str:
    """The text without what differs from run to run."""
    text = text.replace(str(project.root), "PROJECT")
    for pattern, replacement in SAME:
        text = re.sub(pattern, replacement, text)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


CASES = [(s, kind) for s in SITUATIONS for kind in ("pty", "pipe")]
CASES += [(sizes, "pty"), (ascii_only, "pty")]


@pytest.mark.parametrize(("situation", "kind"), CASES, ids=lambda x: getattr(x, "__name__", x))
def test_golden(project, fake_python, situation, kind):
    stage = Stage(project, fake_python, kind)
    situation(stage)
    text = alike("".join(stage.said), project)
    name = situation.__name__.replace("in_processes", "at_once")  # nobody sees the difference
    path = GOLDEN / f"{name}.{kind}.txt"
    if os.environ.get("GOLDEN") == "write":
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
    if kind == "pipe":
        assert "\x1b" not in text
        assert "\r" not in text
