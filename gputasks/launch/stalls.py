"""Silence: which ranks show no sign of life, and what they hang in.

A sign of life is an event or a byte of output.  One rank that is silent for the whole limit is
enough: the others may go on printing for ever while they wait for it.
"""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

from gputasks.launch.stacks import Doing, doing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MARKER = "=== gputasks stacks rank {} ==="
DUMP_S = 3.0
"""A worker that can dump its stacks does it in milliseconds."""
NAMED = 8


class StallWatch:
    """Knows when each rank was last heard of.  Times are of one monotonic clock, in seconds.

    Args:
        ranks: all that will be started.
        timeout_s: the limit of silence; None watches nothing.

    """

    def __init__(self, ranks: Iterable[int], timeout_s: float | None) -> None:
        self._ranks = tuple(ranks)
        self._timeout_s = timeout_s
        self._heard: dict[int, float] = {}
        self._sizes: dict[int, int] = {}
        self._pids: dict[int, int] = {}

    def started(self, rank: int, pid: int) -> None:
        """The rank's process id: when its process is gone, its silence means nothing."""
        self._pids[rank] = pid

    def activity(self, rank: int, now: float) -> None:
        """The rank sent an event."""
        self._heard[rank] = now

    def output(self, rank: int, size: int, now: float) -> None:
        """The rank's log has this size, in bytes."""
        if self._sizes.get(rank) != size:
            self._sizes[rank] = size
            self._heard[rank] = now

    def silent(self, now: float) -> list[int]:
        """The ranks that were silent for too long; one that never spoke counts from the start."""
        if self._timeout_s is None:
            return []
        late = [
            rank
            for rank in self._ranks
            if now - self._heard.setdefault(rank, now) > self._timeout_s
        ]
        return [rank for rank in late if rank not in self._pids or _lives(self._pids[rank])]


def collect_stacks(attempt_dir: str, pids: Mapping[int, int]) -> dict[int, str]:
    """Ask each worker for its stacks: SIGUSR1 makes them appear in its log, after a marker line.

    Args:
        attempt_dir: has `rank-N.log`.
        pids: rank -> process id.

    Returns:
        rank -> what it dumped; ranks that could not be asked or gave no answer are not in it.

    """
    marks = {}
    for rank, pid in pids.items():
        if not _handles(pid, signal.SIGUSR1):
            continue  # a process without our shim would die of the signal
        try:
            marks[rank] = _mark(_log(attempt_dir, rank), MARKER.format(rank))
            os.kill(pid, signal.SIGUSR1)
        except OSError:
            marks.pop(rank, None)
    found = dict.fromkeys(marks, "")
    deadline = time.monotonic() + DUMP_S
    settled = False
    while marks and not settled and time.monotonic() < deadline:
        time.sleep(0.05)
        seen = {rank: _from(_log(attempt_dir, rank), mark) for rank, mark in marks.items()}
        settled = seen == found and all(map(doing, seen.values()))
        found = seen
    return {rank: text for rank, text in found.items() if text}


def group_stacks(stacks: Mapping[int, str]) -> str:
    """Who is where, the odd ones first.

    `rank 1 is in `time.sleep(99)` (train.py:9); 3 others wait in all_reduce (train.py:22)`
    """
    groups: dict[Doing | None, list[int]] = {}
    for rank in sorted(stacks):
        groups.setdefault(doing(stacks[rank]), []).append(rank)
    dumb = groups.pop(None, [])
    ordered = sorted(groups.items(), key=lambda item: (item[0].waits, len(item[1]), item[1][0]))  # type: ignore[union-attr]  # None was taken out
    parts = []
    for number, (what, ranks) in enumerate(ordered):
        many = len(ranks) > 1
        if number and number == len(ordered) - 1:
            who = f"{len(ranks)} other{'s' if many else ''}"
        elif many and not number and len(ranks) == len(stacks):
            who = f"all {len(ranks)} ranks"
        else:
            who = _names(ranks)
        assert what is not None  # noqa: S101  for the type checker, as above
        verb = ("wait" if many else "waits") if what.waits else ("are" if many else "is")
        parts.append(f"{who} {verb} in {what.what}{f' ({what.place})' if what.place else ''}")
    if dumb:
        parts.append(f"{_names(dumb)} gave no stack")
    return "; ".join(parts)


def _names(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:NAMED])) + (", …" if len(ranks) > NAMED else "")
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}"


def _log(attempt_dir: str, rank: int) -> str:
    return os.path.join(attempt_dir, f"rank-{rank}.log")


def _mark(path: str, marker: str) -> int:
    """Append a line to a log, and give the offset behind it."""
    with open(path, "ab+") as file:
        size = file.seek(0, os.SEEK_END)
        if size:
            file.seek(size - 1)
        cut = size > 0 and file.read(1) != b"\n"
        file.write(f"{chr(10) if cut else ''}{marker}\n".encode())
        file.flush()
        return file.seek(0, os.SEEK_END)


def _from(path: str, offset: int) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def _lives(pid: int) -> bool:
    """True unless the process is gone or is only waiting to be reaped."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (OSError, IndexError):
        return False


def _handles(pid: int, signum: int) -> bool:
    """True when the process has a handler for the signal."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            caught = next(line for line in file if line.startswith("SigCgt:"))
    except (OSError, StopIteration):
        return False
    return bool(int(caught.split()[1], 16) >> (signum - 1) & 1)
