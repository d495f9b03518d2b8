"""Finding and ending what a run left, by the mark in its environment: ours alone, never by name."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

MARK = "GPUTASKS_RUN"
"""Variable that every process of a run inherits."""


def living(mark: str) -> list[int]:
    """Processes whose environment holds the mark; zombies have none."""
    needle = f"{MARK}={mark}".encode()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
            if needle in file.read().split(b"\0"):
                found.append(int(name))
    return found


def kill_marked(pids: Iterable[int], mark: str) -> list[int]:
    """SIGKILL those of some processes that are still ours: a pid may have gone to another one."""
    ours = set(living(mark)).intersection(pids)
    for pid in ours:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    return sorted(ours)


def pid_here(pid: int, mark: str) -> int:
    """The pid of a process with the mark as this process sees it; in a container it has another."""
    for here in living(mark):
        with contextlib.suppress(OSError), open(f"/proc/{here}/status", "rb") as file:
            inside = next((line.split()[1:] for line in file if line.startswith(b"NSpid:")), [])
            if len(inside) > 1 and int(inside[-1]) == pid:
                return here
    return 0


def sweep_mark(mark: str, *, timeout_s: float = 5.0) -> int:
    """SIGKILL everything that carries the mark, until nothing does; how many there were."""
    killed: set[int] = set()
    deadline = time.monotonic() + timeout_s
    while (left := living(mark)) and time.monotonic() < deadline:
        for pid in left:
            killed.add(pid)
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    return len(killed)
