"""`runtime="inline"`: a script in doit's own process, which starts nothing and imports once.

Everything that a process of its own would have is lent to it for the time: variables, folder,
command line, `sys.path`, `__main__`, streams, signal handlers, modules of the project.  What only
the end of a process can undo (threads, GPU memory, settings of libraries) stays, and nothing can
kill a script that does not come back: hence only for short and well-behaved ones.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import runpy
import signal
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any

from gputasks.errors import MachineError
from gputasks.launch.local import PAYLOAD
from gputasks.layout import write_json
from gputasks.proc import Interrupted, interrupts, sweep_mark
from gputasks.proc.interrupts import SIGNALS
from gputasks.proc.sweep import MARK
from gputasks.run.attempt import TICK_S, AttemptResult, Follow

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from gputasks.events import EventLog
    from gputasks.launch.local import Attempt
    from gputasks.leases import TaskLock
    from gputasks.secrets import Secrets
    from gputasks.specs import Command, Run

_first_gpu: list[str] = []


class _TimeUp(BaseException):
    """`max_duration` is over; no script catches it by accident."""


def run_inline(
    run: Run,
    command: Command,
    attempt: Attempt,
    *,
    log: EventLog,
    lock: TaskLock,
    deadline: float | None,
    secrets: Secrets,
) -> AttemptResult:
    """Run a training's script here and now.

    Args:
        run: what the user asked for.
        command: what would be started; its environment and the words for the script are used.
        attempt: where its files go; the folders are made here.
        log: the run's event log.
        lock: the task's lock, kept warm.
        deadline: monotonic time at which the run has lasted long enough.
        secrets: what must not be seen of it; its files are cleaned at the end.

    Raises:
        MachineError: this is not the main thread, or the process already uses another GPU.

    """
    _refuse_what_cannot_be(command)
    os.makedirs(attempt.events)
    write_json(attempt.params, dict(run.params), sync=False)
    follow = Follow(run, attempt, 1, log)
    follow.hide = secrets.hide
    began = time.monotonic()
    seen: list[int] = []
    with _followed(follow, lock), _lent(command, attempt, seen):
        code, ended_by = _outcome(attempt, deadline)
    swept = sweep_mark(attempt.mark)
    follow.look()
    secrets.clean(attempt.folder, ())
    duration_s = round(time.monotonic() - began, 3)
    result = AttemptResult("succeeded" if code == 0 else "failed", code, duration_s)
    result.metrics, result.facts = follow.metrics, follow.facts
    if isinstance(ended_by, _TimeUp):
        result.outcome, result.text = "timed_out", "ran longer than its `max_duration`"
    elif isinstance(ended_by, Interrupted) or seen:
        result.outcome = "interrupted"
        result.signum = interrupts.requested or (seen[0] if seen else signal.SIGINT)
    if swept:
        log.write("note", level="warning", text=f"{swept} processes of the script were ended")
    return result


def _refuse_what_cannot_be(command: Command) -> None:
    if threading.current_thread() is not threading.main_thread():
        raise MachineError(
            '`runtime="inline"` needs the main thread of doit', hint="`doit -n 2 -P process`"
        )
    shown = command.env.get("CUDA_VISIBLE_DEVICES", "")
    torch = sys.modules.get("torch")
    if shown and torch is not None and torch.cuda.is_initialized() and shown not in _first_gpu:
        raise MachineError(
            f"doit's process uses another GPU than {shown}, and cannot change",
            hint='`runtime="isolated"`, or one task at a time',
        )
    if shown:
        _first_gpu[:] = [shown]


def _outcome(attempt: Attempt, deadline: float | None) -> tuple[int, BaseException | None]:
    """The exit code that a process would have had, and what ended the script."""
    if deadline is not None:
        signal.setitimer(signal.ITIMER_REAL, max(0.001, deadline - time.monotonic()))
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except (Interrupted, _TimeUp) as error:
        return 1, error
    except SystemExit as error:
        if error.code in (None, 0):
            return 0, None
        _tell(error, attempt)
        return (error.code if isinstance(error.code, int) else 1), error
    except BaseException as error:  # noqa: BLE001  whatever the script raises
        _tell(error, attempt)
        return 1, error
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return 0, None


def _tell(error: BaseException, attempt: Attempt) -> None:
    """Print it as Python would, and write it down as the shim does."""
    trace = _of_script(error.__traceback__)
    if isinstance(error, SystemExit):
        if not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
    else:
        traceback.print_exception(type(error), error, trace)
    worker: Any = importlib.import_module("gputasks_worker.failure")
    ranks: Any = importlib.import_module("gputasks_worker.rank")
    rank = ranks.Rank()
    rank.rank, rank.log_dir = 0, attempt.folder
    worker.Failure(error, rank, trace).write(sigterm=False)


def _of_script(trace: TracebackType | None) -> TracebackType | None:
    mine = (__file__, runpy.__file__, "<frozen runpy>")
    while trace is not None and trace.tb_frame.f_code.co_filename in mine:
        trace = trace.tb_next
    return trace


@contextlib.contextmanager
def _followed(follow: Follow, lock: TaskLock) -> Iterator[None]:
    """Pass events on while the main thread is busy with the script."""
    done = threading.Event()

    def look() -> None:
        while not done.wait(TICK_S):
            follow.look()
            lock.heartbeat()

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextlib.contextmanager
def _lent(command: Command, attempt: Attempt, seen: list[int]) -> Iterator[None]:
    """Give the script what a process of its own would have, and take it back."""
    _, script, *words = command.argv
    root = os.getcwd()
    before = dict(os.environ), sys.argv, list(sys.path), sys.stdout, sys.stderr, _of(root)
    handlers = {s: signal.getsignal(s) for s in (*SIGNALS, signal.SIGALRM)}
    env = command.env
    rank_events = os.path.join(attempt.events, "rank-0.jsonl")
    log = open(attempt.rank_log(0), "a", 1, "utf-8", "backslashreplace")  # noqa: SIM115  see below
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    try:
        os.environ.clear()
        os.environ.update({**env, "GPUTASKS_EVENTS": rank_events, MARK: attempt.mark})
        os.chdir(command.cwd)
        sys.argv = [script, *words]
        paths = [p for p in env.get("PYTHONPATH", PAYLOAD).split(os.pathsep) if p]
        sys.path[:] = [os.path.dirname(os.path.abspath(script)), *paths, *sys.path]
        sys.stdout = sys.stderr = log
        for name in before[5]:
            del sys.modules[name]
        signal.signal(signal.SIGALRM, _time_up)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        yield
    finally:
        signal.set_wakeup_fd(-1)
        for signum, handler in handlers.items():
            signal.signal(signum, handler if handler is not None else signal.SIG_DFL)
        with contextlib.suppress(BlockingIOError):
            seen += [s for s in os.read(reader, 4096) if s in SIGNALS]
        os.close(reader)
        os.close(writer)
        _flush_progress()
        log.flush()  # and stays open: a logger of the script may hold it
        sys.argv, sys.path[:], sys.stdout, sys.stderr = before[1:5]
        os.environ.clear()
        os.environ.update(before[0])
        os.chdir(root)
        for name in _of(root):
            del sys.modules[name]
        sys.modules.update(before[5])


def _time_up(_signum: int, _frame: object) -> None:
    raise _TimeUp


def _of(root: str) -> dict[str, Any]:
    """Modules of the project: another script may mean another file by the same name."""
    found = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        inside = file.startswith(root + os.sep) and "-packages" + os.sep not in file
        if inside and name.partition(".")[0] not in ("gputasks", "dodo", "__main__"):
            found[name] = module
    return found


def _flush_progress() -> None:
    worker: Any = sys.modules.get("gputasks_worker.progress")
    if worker is not None:
        worker._progress.flush()  # noqa: SLF001  a file of ours that is sent to workers
