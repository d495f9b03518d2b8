"""A job under its guard (`agent/guard.py`), and all those of this process."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from gputasks.frozen import Frozen, spec
from gputasks.proc.sweep import MARK, sweep_mark

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

GUARD = os.path.join(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "agent", "guard.py"
)

_live: dict[int, Guarded] = {}
_owner = 0


@spec
class Hide(Frozen):
    """What a job knows that nobody may see, see `agent/pump.py`.

    Args:
        forms: byte strings that become `***` wherever they appear.
        rank_logs: logs of the ranks, by rank, written through named pipes.
        folder: whose text files are cleaned when the job has ended.
        events: folder below that one which this process reads, and cleans if it lives.
    """

    forms: tuple[bytes, ...]
    rank_logs: tuple[str, ...] = ()
    folder: str = ""
    events: str = ""


@spec
class Start(Frozen):
    """What to start.

    Args:
        argv: program and arguments.
        env: the complete environment; nothing is inherited.  It reaches the guard through a pipe.
        cwd: absolute working folder.
        output: file to which stdout and stderr are appended.
        mark: value of GPUTASKS_RUN in the job's environment, unique to the attempt.
        grace_s: seconds between SIGTERM and SIGKILL.
        status: file for the guard's last word, may be empty.
        keep_fds: lock files that the guard holds until its sweep is over; the job gets none.
        hide: what must not get into the logs; None lets the job write them itself.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    output: str
    mark: str
    grace_s: float = 30.0
    status: str = ""
    keep_fds: tuple[int, ...] = ()
    hide: Hide | None = None


@spec
class Ended(Frozen):
    """How a job ended.

    Args:
        returncode: its exit code; negative is the signal that killed it.
        stopped: why it was stopped: empty, `terminated`, `killed`, `driver lost`, `guard
            signalled`, `guard died`.
        swept: processes that had to be killed after it.
        error: why it could not be started.
        duration_s: by a monotonic clock.
    """

    returncode: int
    stopped: str = ""
    swept: int = 0
    error: str = ""
    duration_s: float = 0.0


class Guarded:
    """A running job.  Safe to use from several threads."""

    def __init__(self, process: Any, mark: str, grace_s: float) -> None:
        self._process = process
        self._mark = mark
        self._grace_s = grace_s
        self._said = b""
        self._ended: Ended | None = None
        self._lock = threading.RLock()

    @classmethod
    def start(cls, spec: Start) -> Guarded:
        """Start a job under a guard of its own.

        Raises:
            OSError: no process can be made.
        """
        import subprocess

        process = subprocess.Popen(
            [sys.executable, "-I", "-S", GUARD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            pass_fds=spec.keep_fds,
        )
        guard = cls(process, spec.mark, spec.grace_s)
        order = {
            "argv": list(spec.argv),
            "env": {**spec.env, MARK: spec.mark},
            "cwd": spec.cwd,
            "output": spec.output,
            "grace_s": spec.grace_s,
            "status": spec.status,
            "driver": [os.getpid(), _start_time()],
        }
        if spec.hide is not None:
            forms = [form.decode("latin-1") for form in spec.hide.forms]
            order["hide"] = {**vars(spec.hide), "forms": forms}
        _register(guard)
        line = json.dumps(order).encode("utf-8", "surrogatepass") + b"\n"
        with contextlib.suppress(BrokenPipeError):
            guard._process.stdin.write(line)
            guard._process.stdin.flush()
        return guard

    @property
    def pid(self) -> int:
        """The guard's pid."""
        return int(self._process.pid)

    def stop(self) -> None:
        """SIGTERM, grace, SIGKILL; returns at once."""
        self._send(b"T")

    def kill(self) -> None:
        """SIGKILL to all at once; returns at once."""
        self._send(b"K")

    def _send(self, order: bytes) -> None:
        with contextlib.suppress(OSError, ValueError):
            os.write(self._process.stdin.fileno(), order)

    def poll(self) -> Ended | None:
        """How it ended, None while it lives."""
        return self.wait(0)

    def wait(self, timeout_s: float | None) -> Ended | None:
        """Wait for the end of the guard's sweep, at most so long."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while self._ended is None:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            with self._lock:
                if self._ended is None and self._readable(left):
                    self._listen()
            if deadline is not None and time.monotonic() >= deadline:
                break
        return self._ended

    def _readable(self, timeout_s: float | None) -> bool:
        # Short looks, so that another thread's kill() and a signal are never kept waiting.
        step = 0.5 if timeout_s is None else min(0.5, timeout_s)
        return bool(select.select([self._process.stdout], [], [], step)[0])

    def _listen(self) -> None:
        data = os.read(self._process.stdout.fileno(), 65536)
        self._said += data
        if data and not self._said.endswith(b"\n"):
            return
        self._process.wait()
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.stdout.close()
        _live.pop(id(self), None)
        self._ended = self._understand()

    def _understand(self) -> Ended:
        try:
            return Ended(**json.loads(self._said.splitlines()[0]))
        except (IndexError, ValueError, TypeError):
            # Both guards were killed at once: the mark finds what they left.
            return Ended(-9, "guard died", sweep_mark(self._mark))


def _start_time() -> str:
    with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()[19]


def _register(guard: Guarded) -> None:
    global _owner  # noqa: PLW0603  the registry belongs to one process
    if _owner != os.getpid():
        _owner = os.getpid()
        _live.clear()
        atexit.register(_at_exit, _owner)
    _live[id(guard)] = guard


def _mine() -> list[Guarded]:
    """The live ones of this process; a forked child leaves its parent's alone."""
    return list(_live.values()) if _owner == os.getpid() else []


def stop_all() -> None:
    """`stop` every job of this process."""
    for guard in _mine():
        guard.stop()


def kill_all() -> None:
    """`kill` every job of this process."""
    for guard in _mine():
        guard.kill()


def wait_all(timeout_s: float) -> bool:
    """True when all jobs of this process have ended within the time."""
    deadline = time.monotonic() + timeout_s
    return all(g.wait(max(0.0, deadline - time.monotonic())) is not None for g in _mine())


def _at_exit(owner: int) -> None:
    if owner == os.getpid() and _live:
        stop_all()
        grace = max((g._grace_s for g in _mine()), default=0.0)  # noqa: SLF001  same room
        if not wait_all(grace + 5):
            kill_all()
            wait_all(5)
