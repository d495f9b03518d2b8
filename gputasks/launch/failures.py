"""Who failed first, why, and who only followed.

When one rank of a training dies, all others fail too: with "Connection closed by peer", or because
the launcher ends them.  Times do not tell them apart (torch's are whole seconds; the culprit and the
victim had the same in each case that was measured), so the kind of the end does:

1. an exception of a rank's own, in the order of their times;
2. a signal or an exit code, in the order in which the launcher saw them;
3. an exception that says another rank is gone;
4. ranks that the launcher ended.
"""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass
from typing import Any

from gputasks.launch import causes, torchrun_log
from gputasks.launch.logs import last_lines, read_end
from gputasks.launch.stacks import place_of_crash
from gputasks.layout import read_json

LAUNCHER_LOG = "output.log"
OWN, DIED, PEER, CLOSED = range(4)


@dataclass(frozen=True)
class Failure:
    """How one rank ended, or the launcher when no rank is to blame (`rank` is None then).

    Args:
        exit_code: as a shell tells it: 128 + n for signal n; None when it is not known.
        signal: `SIGKILL`; None when it was none.
        cause: one line.
        place: `file:line` of the user's, or empty.
        log: path of its whole log.
        lines: the last lines of that.
        secondary: a consequence of an earlier one in the list.
        hint: what to do next, or empty.
    """

    rank: int | None
    local_rank: int | None
    node: str
    exit_code: int | None
    signal: str | None
    cause: str
    place: str
    log: str
    lines: tuple[str, ...]
    secondary: bool
    hint: str


def find_cause(
    attempt_dir: str,
    *,
    world_size: int,
    agent_returncode: int,
    node: str,
    oom_kills: int | None = None,
) -> list[Failure]:
    """All ends that were no good ones, the culprit first; empty when the launcher ended well.

    Args:
        attempt_dir: has `rank-N.log`, `rank-N.error.json`, `output.log` and torch's `elastic` folder.
        world_size: number of ranks that were started.
        agent_returncode: how the launcher ended, as Popen tells it.
        node: its name.
        oom_kills: how often the kernel killed for lack of memory meanwhile, None when not known.
    """
    if agent_returncode == 0:
        return []
    launcher_log = os.path.join(attempt_dir, LAUNCHER_LOG)
    launcher_text = read_end(launcher_log)
    rows = torchrun_log.parse(launcher_text)
    errors = _errors(attempt_dir, world_size)
    ends = [
        _End(attempt_dir, rank, rows.get(rank), errors.get(rank)) for rank in {*rows, *errors}
    ]
    if not ends:
        return [_launcher(node, agent_returncode, launcher_log, launcher_text)]
    ends.sort(key=lambda end: end.order)
    first = ends[0]
    return [
        end.failure(node, oom_kills, secondary=end is not first and (end.kind, OWN) != (first.kind, OWN) and end.kind != DIED or end is not first and end.kind > first.kind)
        for end in ends
    ]
