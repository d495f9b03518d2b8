"""The shim beside a real script in real processes; the launcher is only the variables it sets."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from gputasks.launch.local import PAYLOAD, SHIM
from gputasks.launch.stalls import MARKER, collect_stacks, group_stacks


class Launch:
    """A folder with `train.py`, and what one start of it leaves in `logs` and `events`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.logs = root / "logs"
        self.events = root / "events"
        self.logs.mkdir()
        self.events.mkdir()
        self.workers: list[subprocess.Popen[bytes]] = []

    def script(self, text: str, name: str = "train.py") -> None:
        (self.root / name).write_text(textwrap.dedent(text), encoding="utf-8")

    def env(self, rank: int = 0, world: int = 1, **extra: str) -> dict[str, str]:
        return {
            **os.environ,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(world),
            "GPUTASKS_LOG_DIR": str(self.logs),
            "GPUTASKS_EVENTS_DIR": str(self.events),
            "PYTHONPATH": PAYLOAD,
            "PYTHONUNBUFFERED": "1",
            **extra,
        }

    def start(self, *args: str, rank: int = 0, world: int = 1, **extra: str):
        worker = subprocess.Popen(
            [sys.executable, "-u", SHIM, *(args or ("train.py",))],
            cwd=self.root, env=self.env(rank, world, **extra), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.workers.append(worker)
        return worker

    def run(self, *args: str, world: int = 1, **extra: str) -> list[int]:
        workers = [self.start(*args, rank=r, world=world, **extra) for r in range(world)]
        return [self.end(w) for w in workers]

    def end(self, worker) -> int:
        output, _ = worker.communicate(timeout=30)
        assert output == b"", output
        return worker.returncode

    def plain(self, *args: str) -> subprocess.CompletedProcess[bytes]:
        """The same without the shim."""
        return subprocess.run(
            [sys.executable, "-u", *args], cwd=self.root, env=self.env(), timeout=30,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def log(self, rank: int = 0) -> bytes:
        return (self.logs / f"rank-{rank}.log").read_bytes()

    def wait_for(self, text: bytes, rank: int = 0) -> None:
        deadline = time.monotonic() + 20
        while not (self.logs / f"rank-{rank}.log").exists() or text not in self.log(rank):
            assert time.monotonic() < deadline, f"{text!r} never came"
            time.sleep(0.01)

    def error(self, rank: int = 0):
        path = self.logs / f"rank-{rank}.error.json"
        return json.loads(path.read_text()) if path.exists() else None


@pytest.fixture
def launch(tmp_path: Path):
    made = Launch(tmp_path)
    yield made
    for worker in made.workers:
        if worker.poll() is None:
            worker.kill()
        worker.communicate()


def test_log_has_every_byte_of_the_rank_and_its_children(launch):
    launch.script("""
        import os, sys
        print("✓ first")
        os.write(1, b"\\xff raw\\n")
        print("error", file=sys.stderr)
        print("no newline \\udcff", end="")
        os.system("echo; echo child; echo child error >&2")
    """)
    (launch.logs / "rank-1.log").write_bytes(b"kept\n")
    codes = launch.run(world=2, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert codes == [0, 0]
    text = "✓ first\n".encode() + b"\xff raw\nerror\nno newline \\udcff\nchild\nchild error\n"
    assert launch.log(0) == text
    assert launch.log(1) == b"kept\n" + text


def test_lines_arrive_before_the_end(launch):
    launch.script("""
        import time
        print("now")
        time.sleep(60)
    """)
    worker = launch.start(PYTHONUNBUFFERED="")
    launch.wait_for(b"now\n")
    assert worker.poll() is None


def test_first_event_and_the_place_for_more(launch):
    launch.script("""
        import os
        print(os.environ["GPUTASKS_EVENTS"], os.getpid())
    """)
    assert launch.run(world=2) == [0, 0]
    for rank in (0, 1):
        path, pid = launch.log(rank).decode().split()
        assert path == str(launch.events / f"rank-{rank}.jsonl")
        (line,) = Path(path).read_text().splitlines()
        event = json.loads(line)
        assert abs(event.pop("t") - time.time()) < 60
        assert event == {
            "kind": "rank", "rank": rank, "world_size": 2, "local_rank": rank, "pid": int(pid),
        }  # fmt: skip
    assert sorted(p.name for p in launch.logs.iterdir()) == ["rank-0.log", "rank-1.log"]


SELF = """
    import json, os, pickle, sys
    class Thing:
        pass
    thing = pickle.loads(pickle.dumps(Thing()))
    main = sys.modules["__main__"]
    print(json.dumps({
        "argv": sys.argv, "path0": sys.path[0], "file": os.path.abspath(__file__), "name": __name__,
        "main": main.Thing is Thing and main.__dict__ is globals(), "package": __package__,
        "pickled": type(thing) is Thing, "globals": sorted(g for g in globals() if g != "__annotations__"),
    }))
"""


@pytest.mark.parametrize("script", ["train.py", "sub/train.py", "link.py"])
def test_script_sees_what_it_sees_without_the_shim(launch, script):
    (launch.root / "sub").mkdir()
    launch.script(SELF)
    launch.script(SELF, "sub/train.py")
    (launch.root / "link.py").symlink_to("sub/train.py")
    args = (script, "--lr", "0.1", "-m", "a b", "")
    assert launch.run(*args) == [0]
    assert json.loads(launch.log()) == json.loads(launch.plain(*args).stdout)


def test_module_form(launch):
    (launch.root / "package").mkdir()
    launch.script("", "package/__init__.py")
    launch.script("import sys\nprint(sys.argv[1:], __name__, __package__)", "package/__main__.py")
    assert launch.run("-m", "package", "--x") == [0]
    assert launch.log() == launch.plain("-m", "package", "--x").stdout


def test_spawned_children_find_the_script(launch):
    launch.script("""
        import multiprocessing as mp
        def double(n):
            return 2 * n
        if __name__ == "__main__":
            with mp.get_context("spawn").Pool(1) as pool:
                print(pool.map(double, [21]))
    """)
    assert launch.run() == [0]
    assert launch.log() == b"[42]\n"


def test_exit_handlers_and_threads_still_see_the_script(launch):
    launch.script("""
        import atexit, threading, time
        def last():
            print("last", sys.modules["__main__"].word)
        def late():
            time.sleep(0.1)
            print("late", sys.modules["__main__"].word)
        import sys
        word = "here"
        atexit.register(last)
        threading.Thread(target=late).start()
    """)
    assert launch.run() == [0]
    assert launch.log() == b"late here\nlast here\n"


@pytest.mark.parametrize(
    ("end", "code", "recorded"),
    [
        ("pass", 0, None),
        ("sys.exit()", 0, None),
        ("sys.exit(0)", 0, None),
        ("sys.exit(17)", 17, 17),
        ("sys.exit('no data')", 1, 1),
        ("raise KeyboardInterrupt", -signal.SIGINT, 130),
        ("raise ValueError('x')", 1, 1),
        ("os._exit(23)", 23, None),
        ("os.kill(os.getpid(), 9)", -9, None),
    ],
)
def test_ends_are_pythons_own(launch, end, code, recorded):
    launch.script(f"import os, sys\n{end}\n")
    assert launch.run() == [code]
    plain = launch.plain("train.py")
    assert (plain.returncode, plain.stdout) == (code, launch.log())
    error = launch.error()
    assert (error and error["exit_code"]) == recorded
    assert not (launch.logs / "rank-0.signal").exists()


FAILING = """
    import json
    def parse(text):
        return json.loads(text)
    def main():
        try:
            parse("{")
        except ValueError as error:
            raise RuntimeError("bad\\nbatch ✓") from error
    main()
"""


def test_error_is_written_for_us_and_for_torch(launch):
    launch.script(FAILING)
    theirs = launch.root / "torch.json"
    before = time.time()
    assert launch.run(TORCHELASTIC_ERROR_FILE=str(theirs)) == [1]
    error = launch.error()
    assert before <= error.pop("time") <= time.time()
    assert error == {
        "type": "RuntimeError", "message": "bad\nbatch ✓", "place": "train.py:9", "exit_code": 1,
        "local_rank": 0, "sigterm": False, "hint": "",
    }  # fmt: skip
    message = json.loads(theirs.read_text())["message"]
    assert message["message"] == "RuntimeError: bad"
    assert message["errorCode"] == 1
    assert message["extraInfo"]["timestamp"].isdigit()
    assert message["extraInfo"]["py_callstack"] == launch.log().decode()
    assert launch.log() == launch.plain("train.py").stdout


def test_place_is_the_users_line_not_the_librarys(launch):
    launch.script("import json\n\njson.loads('{')\n")
    assert launch.run() == [1]
    assert launch.error()["type"] == "json.decoder.JSONDecodeError"
    assert launch.error()["place"] == "train.py:3"


def test_place_of_a_script_that_does_not_parse(launch):
    launch.script("x = 1\ndef broken(:\n")
    assert launch.run() == [1]
    assert launch.error()["place"] == "train.py:2"
    assert launch.log() == launch.plain("train.py").stdout


def test_place_of_what_failed_in_a_data_loader(launch):
    launch.script("""
        raise ValueError('''Caught ValueError in DataLoader worker process 0.
        Original Traceback (most recent call last):
          File "/x/site-packages/torch/utils/data/worker.py", line 358, in _worker_loop
          File "%s/dataset.py", line 88, in __getitem__
            raise ValueError("bad row")
        ValueError: bad row
        ''' % __file__.rpartition("/")[0])
    """)
    assert launch.run() == [1]
    assert launch.error()["place"] == "dataset.py:88"


def test_hook_and_error_file_of_the_script_win(launch):
    launch.script("""
        import os, sys
        sys.excepthook = lambda kind, error, trace: print("my hook:", error)
        open(os.environ["TORCHELASTIC_ERROR_FILE"], "w").write("written by @record")
        raise ValueError("x")
    """)
    theirs = launch.root / "torch.json"
    assert launch.run(TORCHELASTIC_ERROR_FILE=str(theirs)) == [1]
    assert launch.log() == b"my hook: x\n"
    assert theirs.read_text() == "written by @record"
    assert launch.error()["type"] == "ValueError"


def test_no_folder_for_the_log(launch):
    worker = launch.start(GPUTASKS_LOG_DIR=str(launch.root / "none"))
    output, _ = worker.communicate(timeout=30)
    assert worker.returncode == 1
    assert output.startswith(b"gputasks: the log of rank 0 cannot be written: ")
    assert b"Traceback" not in output


def test_full_disk_hides_nothing(launch):
    if not os.path.exists("/dev/full"):
        pytest.skip("needs /dev/full")
    (launch.logs / "rank-0.error.json.part").symlink_to("/dev/full")
    (launch.events / "rank-0.jsonl").symlink_to("/dev/full")
    launch.script("raise ValueError('the real one')")
    assert launch.run() == [1]
    assert b"ValueError: the real one" in launch.log()
    assert b"events cannot be written" in launch.log()


def test_stacks_on_demand(launch):
    launch.script("""
        import os, threading, time
        def waits_for_ever():
            time.sleep(300)
        if os.environ["RANK"] == "1":
            print("ready", end="")
            waits_for_ever()
        else:
            print("ready")
            threading.Event().wait()
    """)
    workers = [launch.start(rank=rank, world=3) for rank in range(3)]
    for rank in range(3):
        launch.wait_for(b"ready", rank)
    stacks = collect_stacks(str(launch.logs), {r: w.pid for r, w in enumerate(workers)})
    assert sorted(stacks) == [0, 1, 2]
    assert launch.log(1).startswith(b"ready\n" + MARKER.format(1).encode() + b"\n")
    assert " in waits_for_ever\n" in stacks[1]
    text = group_stacks(stacks)
    assert "rank 1 is in `time.sleep(300)` (" in text
    assert "2 others are in `threading.Event().wait()` (" in text
    assert "train.py:10" in text
    assert [w.poll() for w in workers] == [None] * 3


def test_stacks_are_not_asked_of_a_process_that_would_die(launch):
    (launch.logs / "rank-0.log").write_bytes(b"")
    sleeper = subprocess.Popen(["sleep", "60"])
    launch.workers.append(sleeper)
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert collect_stacks(str(launch.logs), {0: sleeper.pid, 1: gone.pid}) == {}
    assert sleeper.poll() is None
    assert group_stacks({}) == ""


def test_stack_of_a_crash_is_in_the_log(launch):
    launch.script("""
        import ctypes
        def crash():
            ctypes.string_at(0)
        crash()
    """)
    assert launch.run() == [-signal.SIGSEGV]
    assert b"Segmentation fault" in launch.log()
    assert b" in crash\n" in launch.log()


def test_handled_sigterm_leaves_a_mark(launch):
    launch.script("""
        import signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        print("ready")
        time.sleep(60)
    """)
    worker = launch.start()
    launch.wait_for(b"ready")
    worker.send_signal(signal.SIGTERM)
    assert launch.end(worker) == 0
    assert (launch.logs / "rank-0.signal").read_text() == "SIGTERM\n"
    assert launch.error() is None


def test_failure_after_sigterm_says_so(launch):
    launch.script("""
        import signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        print("ready")
        time.sleep(60)
    """)
    worker = launch.start()
    launch.wait_for(b"ready")
    worker.send_signal(signal.SIGTERM)
    assert launch.end(worker) == 143
    assert launch.error()["sigterm"] is True


def test_forked_child_that_is_terminated_leaves_no_mark(launch):
    launch.script("""
        import os, signal, time
        signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
        child = os.fork()
        if child == 0:
            print("child")
            time.sleep(60)
            os._exit(1)
        time.sleep(0.2)
        os.kill(child, signal.SIGTERM)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """)
    assert launch.run() == [0]
    assert launch.log() == b"child\n7\n"
    assert not (launch.logs / "rank-0.signal").exists()


# A torch whose process group is only a number, so that a case takes 0.1 s and not 5 s; the real one
# is in tests/e2e/test_shim_torch.py.
C10D = """
    size = 0
    def init_process_group(backend=None):
        global size
        import os
        size = int(os.environ["WORLD_SIZE"])
    def get_world_size():
        return size
    def destroy_process_group():
        global size
        size = 0
"""
GROUP = """
    import torch.distributed as dist
    dist.init_process_group("gloo")
    dist.destroy_process_group()
"""
STATE = "class PartialState:\n    _shared_state = {'num_processes': 1}\n"


@pytest.mark.parametrize(
    ("script", "world", "switch", "alone"),
    [
        ("import torch", 2, "", True),
        ("import torch, sys; sys.exit(0)", 2, "", True),
        ("import torch.distributed", 3, "", True),
        (GROUP, 2, "", False),
        ("import torch", 1, "", False),
        ("import torch", 2, "off", False),
        ("print('no torch')", 2, "", False),
        (GROUP + "    import accelerate.state\n", 2, "", True),
        (GROUP + "    import accelerate.state, pytorch_lightning\n", 2, "", False),
    ],
)
def test_ranks_that_trained_alone(launch, script, world, switch, alone):
    for folder in ("torch/distributed", "accelerate", "pytorch_lightning"):
        (launch.root / folder).mkdir(parents=True)
        launch.script("", f"{folder}/__init__.py")
    launch.script("", "torch/__init__.py")
    launch.script("from .distributed_c10d import *", "torch/distributed/__init__.py")
    launch.script(C10D, "torch/distributed/distributed_c10d.py")
    launch.script(STATE, "accelerate/state.py")
    launch.script(script)
    codes = launch.run(world=world, GPUTASKS_WORLD_CHECK=switch)
    assert codes == [int(alone)] * world
    for rank in range(world):
        error = launch.error(rank)
        if alone:
            text, hint = error["message"].split("\n")
            assert text == (f"{world} ranks were started but each trained alone: world size 1")
            assert 'strategy="ddp"' in hint
            assert error["hint"] in hint
            assert text.encode() in launch.log(rank)
        else:
            assert error is None


def test_own_failure_comes_before_the_world(launch):
    (launch.root / "torch").mkdir()
    launch.script("", "torch/__init__.py")
    launch.script("import torch\nraise ValueError('first')")
    assert launch.run(world=2) == [1, 1]
    assert launch.error()["message"] == "first"


def test_shim_imports_next_to_nothing(launch):
    """Its cost is its imports: milliseconds, and no torch of its own."""
    launch.script("import sys\nprint(*sorted(sys.modules))")
    assert launch.run(world=2) == [0, 0]
    extra = set(launch.log().split()) - set(launch.plain("train.py").stdout.split())
    heavy = b"torch numpy json typing subprocess runpy traceback logging re inspect asyncio".split()
    assert not extra & set(heavy)
    assert len(extra) < 20, sorted(extra)
