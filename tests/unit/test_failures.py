"""Who is to blame: by what torch 2.13's launcher really prints, and what ranks write down."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputasks.launch import memory, torchrun_log
from gputasks.launch.causes import hint
from gputasks.launch.failures import find_cause, shell_code
from gputasks.launch.stalls import StallWatch, group_stacks

GLOO = (
    "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer"
    " [127.0.0.1]:23201. This is typically caused by a remote worker crashing."
)
CUDA = (
    "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.15 GiB of"
    " which 1.12 GiB is free. Including non-PyTorch memory, this process has 78.02 GiB in use."
)


class Attempt:
    """The folder that an attempt leaves, written as the shim and torch write it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def log(self, rank: int, text: str) -> None:
        (self.folder / f"rank-{rank}.log").write_text(text, encoding="utf-8")

    def error(self, rank: int, kind: str, message: str, **more: object) -> None:
        fields = {
            "type": kind, "message": message, "place": f"train.py:{rank}", "time": 1000.5,
            "exit_code": 1, "local_rank": rank, "sigterm": False, "hint": "",
        }  # fmt: skip
        path = self.folder / f"rank-{rank}.error.json"
        path.write_text(json.dumps({**fields, **more}))

    def torchrun(self, *ends: tuple[int, int], closed: tuple[int, ...] = (), root: int = 0) -> None:
        """`(rank, code)` in the order in which the launcher saw them; pids are 4830 + rank."""
        lines = [
            f"W1201 00:22:40.141000 4826 torch/distributed/elastic/multiprocessing/api.py:1028]"
            f" Sending process {4830 + rank} closing signal SIGTERM"
            for rank in closed
        ]
        rank, code = ends[root]
        lines += [
            (f"E1201 00:22:40.143000 4826 torch/distributed/elastic/multiprocessing/api.py:1002]"
            f" failed (exitcode: {code}) local_rank: {rank} (pid: {4830 + rank}) of binary: python"),
            "Traceback (most recent call last):",
            '  File "torch/distributed/launcher/api.py", line 383, in launch_agent',
            "    raise ChildFailedError(",
            "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
            "=" * 60, "shim.py FAILED", "-" * 60, "Failures:",
        ]  # fmt: skip
        rows = [_row(i, *end) for i, end in enumerate(ends)]
        others = [row for i, row in enumerate(rows) if i != root]
        lines += others or ["  <NO_OTHER_FAILURES>"]
        lines += ["-" * 60, "Root Cause (first observed failure):", rows[root], "=" * 60]
        (self.folder / "output.log").write_text("\n".join(lines) + "\n")

    def find(self, world: int = 2, code: int = 1, oom_kills: int | None = None):
        return find_cause(
            str(self.folder), world_size=world, agent_returncode=code, node="hal",
            oom_kills=oom_kills,
        )  # fmt: skip


def _row(order: int, rank: int, code: int) -> str:
    name = f" ({signal.Signals(-code).name})" if code < 0 else ""
    return (
        f"[{order}]:\n  time      : 2026-12-01_00:22:40\n  host      : localhost\n"
        f"  rank      : {rank} (local_rank: {rank})\n"
        f"  exitcode  : {code} (pid: {4830 + rank}) {name}\n  error_file: <N/A>\n"
        "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"
    )


@pytest.fixture
def attempt(tmp_path: Path) -> Attempt:
    return Attempt(tmp_path)


def test_nothing_failed(attempt):
    attempt.error(0, "ValueError", "of a child of the script")
    assert attempt.find(code=0) == []


def test_exit_without_an_exception_is_told_of_the_right_rank(attempt):
    """B74: rank 1 ends by `_exit(23)`; torch's own root cause is the victim here."""
    attempt.torchrun((1, 23), (0, -15), closed=(0,), root=1)
    attempt.error(0, "RuntimeError", GLOO)
    attempt.log(1, "\n".join(f"line {i}" for i in range(30)) + "\n")
    first, second = attempt.find()
    assert (first.rank, first.local_rank, first.node, first.exit_code) == (1, 1, "hal", 23)
    assert (first.signal, first.secondary) == (None, False)
    assert first.cause == "exited with code 23, without a Python exception"
    assert first.lines == tuple(f"line {i}" for i in range(10, 30))
    assert first.log == str(attempt.folder / "rank-1.log")
    assert (second.rank, second.exit_code, second.secondary) == (0, 1, True)
    assert "Connection closed by peer" in second.cause
    assert second.place == "train.py:0"


def test_sys_exit_code_survives(attempt):
    """B73: rank exits 17, the launcher 1."""
    attempt.torchrun((1, 17), (0, -15), closed=(0,))
    attempt.error(1, "SystemExit", "17", exit_code=17)
    attempt.error(0, "RuntimeError", GLOO, time=999.0)
    first, second = attempt.find()
    assert (first.rank, first.exit_code, first.cause) == (1, 17, "sys.exit(17)")
    assert second.secondary


@pytest.mark.parametrize(
    ("kills", "cause"),
    [
        (None, "killed by SIGKILL, likely out of host memory"),
        (2, "killed by SIGKILL: the kernel was out of host memory (oom_kill in its cgroup)"),
        (0, "killed by SIGKILL from outside: its cgroup counted no lack of host memory"),
    ],
)
def test_sigkill(attempt, kills, cause):
    """B75, with and without evidence."""
    attempt.torchrun((1, -9), (0, -15), closed=(0,))
    attempt.error(0, "RuntimeError", GLOO)
    attempt.log(1, "warning: Connection reset by peer, retrying the download\n")
    first, second = attempt.find(oom_kills=kills)
    assert (first.rank, first.exit_code, first.signal) == (1, 137, "SIGKILL")
    assert first.cause == cause
    assert "dmesg" in first.hint
    assert second.secondary


def test_exception_of_its_own_comes_before_all_else(attempt):
    """B77: rank 2 of 4 raises; others lose their peer, are aborted or closed."""
    attempt.torchrun((0, 1), (1, -6), (2, -15), (3, -15), closed=(2, 3))
    attempt.error(0, "torch.distributed.DistBackendError", "NCCL error: remote process exited")
    attempt.log(1, "[rank1] Watchdog caught collective operation timeout: WorkNCCL\n")
    attempt.error(2, "ValueError", "bad batch\nmore", time=1001.0)
    found = attempt.find(world=4)
    assert [f.rank for f in found] == [2, 0, 1, 3]
    assert [f.secondary for f in found] == [False, True, True, True]
    assert found[0].cause == "ValueError: bad batch"
    assert (found[0].exit_code, found[0].signal) == (1, None)
    assert (found[2].exit_code, found[2].signal) == (134, "SIGABRT")
    assert found[3].cause == "ended by the launcher with SIGTERM after the first failure"


def test_same_mistake_on_all_ranks_in_order_of_time(attempt):
    attempt.torchrun((0, 1), (1, 1))
    attempt.error(0, "KeyError", "'x'", time=1000.2)
    attempt.error(1, "KeyError", "'x'", time=1000.1)
    found = attempt.find()
    assert [(f.rank, f.secondary) for f in found] == [(1, False), (0, False)]


def test_own_network_trouble_is_no_loss_of_a_peer(attempt):
    attempt.torchrun((1, 1), (0, -15), closed=(0,))
    attempt.error(1, "ConnectionResetError", "[Errno 104] Connection reset by peer", time=1000.9)
    attempt.error(0, "RuntimeError", GLOO, time=1000.1)
    assert [f.rank for f in attempt.find()] == [1, 0]


def test_what_a_handler_of_sigterm_raises_is_a_consequence(attempt):
    attempt.torchrun((1, -11), (0, 143), closed=(0,))
    attempt.error(0, "SystemExit", "143", exit_code=143, sigterm=True)
    attempt.log(
        1,
        "Fatal Python error: Segmentation fault\n\n"
        "Thread 0x00007f1 (most recent call first):\n"
        '  File "/usr/lib/python3.11/threading.py", line 327 in wait\n\n'
        "Current thread 0x00007f2 (most recent call first):\n"
        '  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at\n'
        f'  File "{os.getcwd()}/my/model.py", line 18 in work\n'
        '  File "/x/gputasks/agent/shim.py", line 94 in _run_script\n',
    )
    first, second = attempt.find()
    assert (first.rank, first.signal, first.place) == (1, "SIGSEGV", "my/model.py:18")
    assert (second.rank, second.exit_code, second.secondary) == (0, 143, True)


def test_sigterm_from_outside(attempt):
    """Rank 1 got it from somebody; the launcher then closed rank 0, whose failure is a consequence."""
    attempt.torchrun((1, -15), (0, -15), closed=(0,), root=1)
    attempt.error(0, "RuntimeError", GLOO)
    first, second = attempt.find()
    assert (first.rank, first.exit_code, first.signal) == (1, 143, "SIGTERM")
    assert first.cause == "ended by SIGTERM from outside"
    assert second.secondary


def test_only_peers_are_known(attempt):
    """The culprit is on a node that is gone: the first victim has to stand for it."""
    attempt.torchrun((0, 1), (1, -15), closed=(1,))
    text = "Timed out waiting 1800000ms for recv operation to complete"
    attempt.error(0, "RuntimeError", text)
    attempt.error(1, "RuntimeError", GLOO, time=1001.0)
    first, second = attempt.find(world=4)
    assert (first.rank, first.secondary, second.secondary) == (0, False, True)
    assert "TORCH_DISTRIBUTED_DEBUG" in first.hint


def test_launcher_that_was_ended_before_its_table(attempt):
    (attempt.folder / "output.log").write_text(
        "E1201 torch/api.py:1002] failed (exitcode: 5) local_rank: 1 (pid: 77) of binary: python\n"
    )
    (only,) = attempt.find(code=-15)
    assert (only.rank, only.exit_code) == (1, 5)


def test_launcher_killed_and_no_rank_failed(attempt):
    attempt.log(0, "step 1\n")
    (only,) = attempt.find(code=-9)
    assert (only.rank, only.exit_code, only.signal) == (None, 137, "SIGKILL")
    assert only.cause == "the launcher was ended by SIGKILL"


@pytest.mark.parametrize(
    ("output", "cause", "advice"),
    [
        (
            (
                "/venv/bin/python: Error while finding module specification for 'torch.distributed.run'"
                " (ModuleNotFoundError: No module named 'torch')\n"
            ),
            "No module named 'torch'",
            "pip install torch",
        ),
        (
            (
                "[W socket.cpp:200] bind to [::]:29500 failed (errno: 98 - Address already in use).\n"
                "Traceback (most recent call last):\n"
                "torch.distributed.DistNetworkError: The server socket has failed: EADDRINUSE\n"
            ),
            "EADDRINUSE",
            "start the task again",
        ),
        ("python: can't open file 'shim.py'\n", "python: can't open file 'shim.py'", ""),
        ("", "", ""),
    ],
)
def test_launcher_that_started_nobody(attempt, output, cause, advice):
    (attempt.folder / "output.log").write_text(output)
    (only,) = attempt.find()
    assert (only.rank, only.secondary) == (None, False)
    assert only.log == str(attempt.folder / "output.log")
    assert cause in only.cause
    assert advice in only.hint


def test_real_python_without_torch(attempt):
    with open(attempt.folder / "output.log", "wb") as out:
        code = subprocess.run(
            [sys.executable, "-S", "-m", "torch.distributed.run", "x.py"],
            stdout=out, stderr=out, cwd=attempt.folder, env={},
        ).returncode  # fmt: skip
    (only,) = attempt.find(code=code)
    assert "No module named 'torch" in only.cause
    assert "pip install torch" in only.hint


def test_cuda_out_of_memory(attempt):
    attempt.torchrun((1, 1), (0, -15), closed=(0,))
    attempt.error(1, "torch.OutOfMemoryError", CUDA)
    first = attempt.find()[0]
    assert first.cause == (
        "torch.OutOfMemoryError: tried to allocate 2.50 GiB on GPU 0, 1.12 GiB of 79.15 GiB free"
    )
    assert "accumulate_grad_batches" in first.hint
    assert "smaller batch" in first.hint
    assert "precision" in first.hint


def test_cuda_out_of_memory_only_in_the_log(attempt):
    attempt.torchrun((0, 1))
    attempt.log(0, f"[rank0]: torch.OutOfMemoryError: {CUDA}\n")
    (only,) = attempt.find(world=1)
    assert "tried to allocate 2.50 GiB on GPU 0" in only.cause
    assert "accumulate_grad_batches" in only.hint


@pytest.mark.parametrize(
    ("kind", "message", "cause", "advice"),
    [
        ("ModuleNotFoundError", "No module named 'timm.models'",
         "ModuleNotFoundError: No module named 'timm.models'", "`pip install timm`"),
        ("RuntimeError", ("DataLoader worker (pid 7) is killed by signal: Bus error. It is possible"
         " that dataloader's workers are out of shared memory."), "RuntimeError: DataLoader worker",
         "/dev/shm"),
        ("RuntimeError", "DataLoader worker (pid(s) 7) exited unexpectedly",
         "RuntimeError: DataLoader worker", "num_workers=0"),
        ("ValueError", ("Caught ValueError in DataLoader worker process 0.\nOriginal Traceback (most"
         ' recent call last):\n  File "d.py", line 1\nValueError: bad row\n'), "ValueError: bad row",
         ""),
        ("OSError", "[Errno 28] No space left on device", "OSError: [Errno 28]", "df -h"),
        ("gputasks_worker.world.TrainedAloneError", ("2 ranks were started but each trained alone:"
         " world size 1\nhint: x"), "2 ranks were started but each trained alone: world size 1", ""),
        ("SystemExit", "no data", "no data", ""),
        ("KeyboardInterrupt", "", "KeyboardInterrupt", ""),
    ],
)  # fmt: skip
def test_causes_and_hints(attempt, kind, message, cause, advice):
    attempt.error(0, kind, message)
    (only,) = attempt.find(world=1)
    assert only.cause.startswith(cause)
    assert "\n" not in only.cause
    assert advice in only.hint


def test_hint_of_the_worker_wins(attempt):
    attempt.error(0, "gputasks_worker.world.TrainedAloneError", "2 ranks", hint="use ddp")
    assert attempt.find()[0].hint == "use ddp"


def test_arguments_that_the_script_does_not_know(attempt):
    attempt.log(
        0, "usage: train.py [-h] [--lr LR]\ntrain.py: error: unrecognized arguments: --rl 1\n"
    )
    attempt.error(0, "SystemExit", "2", exit_code=2)
    (only,) = attempt.find(world=1)
    assert (only.cause, only.exit_code) == ("unrecognized arguments: --rl 1", 2)
    assert "params" in only.hint


def test_bus_error(attempt):
    attempt.torchrun((0, -7))
    (only,) = attempt.find(world=1)
    assert (only.exit_code, only.signal) == (135, "SIGBUS")
    assert "/dev/shm" in only.hint


def test_cpp_exception(attempt):
    attempt.torchrun((0, -6))
    attempt.log(
        0,
        "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n",
    )
    (only,) = attempt.find(world=1)
    assert only.cause.endswith("(std::bad_alloc)")


def test_torchs_error_file_when_ours_is_missing(attempt):
    folder = attempt.folder / "elastic" / "none_x1" / "attempt_0" / "1"
    folder.mkdir(parents=True)
    message = {"message": "ValueError: bad: x", "extraInfo": {"py_callstack": "", "timestamp": "7"}}
    (folder / "error.json").write_text(json.dumps({"message": message}))
    (folder.parent / "0").mkdir()
    (folder.parent / "0" / "error.json").write_text("{half a fi")
    (only,) = attempt.find()
    assert (only.rank, only.local_rank, only.cause) == (1, 1, "ValueError: bad: x")


def test_long_log_and_progress_bars(attempt):
    attempt.error(0, "ValueError", "x")
    bar = "".join(f"\r{i}%" for i in range(101))
    attempt.log(0, "a" * 3_000_000 + "\n" + bar + "\n\n" + "b" * 9000 + "\n")
    (only,) = attempt.find(world=1)
    assert [line[:9] for line in only.lines] == ["a" * 9, "100%", "b" * 9]
    assert only.lines[-1] == "b" * 500


@given(st.text())
def test_parsing_never_raises(text):
    assert torchrun_log.parse(text) == {} or "exitcode" in text


def test_shell_codes():
    assert shell_code(-9) == (137, "SIGKILL")
    assert shell_code(-34)[0] == 162
    assert shell_code(3) == (3, None)
    assert hint("nothing known") == ""


def test_rows_of_torchs_table(attempt):
    attempt.torchrun((3, -9), (1, 7), (0, -15), closed=(0,), root=2)
    rows = torchrun_log.parse((attempt.folder / "output.log").read_text())
    assert {r: (x.code, x.order, x.closed) for r, x in rows.items()} == {
        3: (-9, 0, False), 1: (7, 1, False), 0: (-15, 2, True),
    }  # fmt: skip
    assert rows[3].pid == 4833


def test_oom_kills_of_both_kinds_of_cgroup(tmp_path, monkeypatch):
    two, one = tmp_path / "two", tmp_path / "one"
    (two / "job").mkdir(parents=True)
    one.mkdir()
    monkeypatch.setattr(
        memory, "FILES", (f"{two}{{}}/memory.events", f"{one}{{}}/memory.oom_control")
    )
    proc = tmp_path / "cgroup"
    assert memory.count_oom_kills(str(proc)) is None
    proc.write_text("4:memory:/not/seen/from/a/container\n0::/job\n")
    assert memory.count_oom_kills(str(proc)) is None
    (two / "job" / "memory.events").write_text("low 0\noom 3\noom_kill 2\noom_group_kill 0\n")
    assert memory.count_oom_kills(str(proc)) == 2
    (one / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 5\n")
    assert memory.count_oom_kills(str(proc)) == 5


def test_silence():
    watch = StallWatch(range(3), 10.0)
    assert watch.silent(100.0) == []
    watch.activity(0, 105.0)
    watch.output(1, 50, 105.0)
    assert watch.silent(109.0) == []
    assert watch.silent(110.5) == [2]  # it never spoke
    watch.output(1, 50, 114.0)  # nothing new in its log
    watch.activity(0, 114.0)
    watch.activity(2, 114.0)
    assert watch.silent(116.0) == [1]
    assert StallWatch(range(3), None).silent(1e9) == []


def test_rank_that_is_done_is_not_silent():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    watch = StallWatch([0, 1], 1.0)
    watch.started(0, process.pid)
    watch.silent(0.0)
    assert watch.silent(5.0) == [0, 1]
    process.communicate(b"\n", timeout=30)
    assert watch.silent(5.0) == [1]


def stack(*frames: tuple[str, int, str]) -> str:
    lines = [f'  File "{file}", line {line} in {name}' for file, line, name in frames]
    other = 'Thread 0x00007f1 (most recent call first):\n  File "/x/pin.py", line 1 in run\n\n'
    return other + "\n".join(["Current thread 0x00007f2 (most recent call first):", *lines]) + "\n"


C10D = "/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
WAITING = stack((C10D, 3252, "all_reduce"), ("/gone/train.py", 22, "work"))
SLEEPING = stack(("/gone/train.py", 9, "load"))
LOADING = stack(
    ("/usr/lib/python3.11/threading.py", 327, "wait"),
    ("/v/lib/python3.11/site-packages/torch/utils/data/dataloader.py", 9, "_try_get_data"),
    ("/gone/train.py", 12, "main"),
)


@pytest.mark.parametrize(
    ("stacks", "text"),
    [
        ({0: WAITING, 1: SLEEPING},
         "rank 1 is in load (/gone/train.py:9); 1 other waits in all_reduce (/gone/train.py:22)"),
        ({0: WAITING, 1: WAITING, 2: WAITING, 3: LOADING},
         ("rank 3 is in _try_get_data (/gone/train.py:12);"
         " 3 others wait in all_reduce (/gone/train.py:22)")),
        ({0: WAITING, 1: WAITING}, "all 2 ranks wait in all_reduce (/gone/train.py:22)"),
        ({0: SLEEPING}, "rank 0 is in load (/gone/train.py:9)"),
        ({0: WAITING, 1: ""}, "rank 0 waits in all_reduce (/gone/train.py:22); rank 1 gave no stack"),
        ({}, ""),
    ],
)  # fmt: skip
def test_groups(stacks, text):
    assert group_stacks(stacks) == text
