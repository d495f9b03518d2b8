"""What torch's elastic launcher prints when workers fail (read from torch 2.13).

    W1201 00:22:40 … Sending process 4830 closing signal SIGTERM
    E1201 00:22:40 … failed (exitcode: 23) local_rank: 1 (pid: 4831) of binary: …/python
    …
    [0]:
      time      : 2026-12-01_00:22:40
      host      : localhost
      rank      : 1 (local_rank: 1)
      exitcode  : 23 (pid: 4831)
      error_file: <N/A>

Its own "Root Cause" is the failure with the earliest whole second, which may be the victim's.  The
numbers in brackets are better: they count in the order in which the launcher saw the ends, and
those that it ended itself come last, with a "closing signal" line each.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_ROW = re.compile(
    r"\[(\d+)\]:\n[ ]+time[ ]+:.*\n[ ]+host[ ]+:.*\n"
    r"[ ]+rank[ ]+: (\d+) \(local_rank: (\d+)\)\n"
    r"[ ]+exitcode[ ]+: (-?\d+) \(pid: (\d+)\)"
)
_FIRST = re.compile(r"failed \(exitcode: (-?\d+)\) local_rank: (\d+) \(pid: (\d+)\)")
_CLOSED = re.compile(r"Sending process (\d+) closing signal")


@dataclass(frozen=True)
class Row:
    """One worker that did not end well.

    Args:
        rank: of all workers.
        local_rank: of those on this node.
        code: as Popen tells it: -9 is SIGKILL.
        pid: process id.
        order: in which the launcher saw the ends, from 0.
        closed: the launcher ended it, after another one had failed.

    """

    rank: int
    local_rank: int
    code: int
    pid: int
    order: int
    closed: bool


def parse(text: str) -> dict[int, Row]:
    """The rows of the table by rank, or the one worker that is named when there is no table."""
    closed = {int(pid) for pid in _CLOSED.findall(text)}
    found = [tuple(map(int, row)) for row in _ROW.findall(text)]
    if not found:  # the launcher itself was ended before it could print the table
        found = [(0, local, local, code, pid) for code, local, pid in _first(text)]
    # A launcher that does not say whom it closed ended everybody who has SIGTERM.
    silent = not closed
    return {
        rank: Row(rank, local, code, pid, order, pid in closed or (silent and code == -15))
        for order, rank, local, code, pid in found
    }


def _first(text: str) -> list[tuple[int, int, int]]:
    return [(int(c), int(local), int(pid)) for c, local, pid in _FIRST.findall(text)[:1]]
