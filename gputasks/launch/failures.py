"""Who failed first, why, and who only followed.

When one rank of a training dies, all others fail too: with "Connection closed by peer", or because
the launcher ends them.  Times do not tell them apart (torch's are whole seconds; the culprit and
its victim had the same in each case that was measured), so the kind of the end does:

1. an exception of a rank's own, in the order of their times;
2. a signal or an exit code, in the order in which the launcher saw them;
3. an exception that says another rank is gone;
4. ranks that the launcher ended.
"""

from __future__ import annotations

import glob
import os
import signal
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
        attempt_dir: has `rank-N.log`, `rank-N.error.json`, `output.log`, torch's `elastic` folder.
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
    ends = [_End(attempt_dir, r, rows.get(r), errors.get(r)) for r in {*rows, *errors}]
    if not ends:
        return [_launcher(node, agent_returncode, launcher_log, launcher_text)]
    ends.sort(key=lambda end: end.order)
    first = ends[0]
    return [
        end.failure(
            node,
            oom_kills,
            secondary=end is not first and (end.kind > first.kind or end.kind >= PEER),
        )
        for end in ends
    ]


class _End:
    """What is known of one rank's end."""

    def __init__(
        self,
        attempt_dir: str,
        rank: int,
        row: torchrun_log.Row | None,
        error: dict[str, Any] | None,
    ) -> None:
        self.rank = rank
        self.row = row
        self.error = error
        self.log = os.path.join(attempt_dir, f"rank-{rank}.log")
        self.text = read_end(self.log)
        self.lines = last_lines(self.text)
        self.cause = causes.of_error(error, self.lines) if error else causes.of_log(self.lines)
        self.kind = self._kind()

    def _kind(self) -> int:
        if self.error is not None and not self.error.get("sigterm"):
            return PEER if causes.tells_peer_loss(self.error) else OWN
        # After a SIGTERM scripts end in all ways: by an exception in a handler, by sys.exit(143).
        if self.row is None or self.row.closed:
            return CLOSED
        # NCCL's watchdog and gloo end a rank by abort() when another one is gone.
        aborted = self.row.code in (1, -signal.SIGABRT)
        told = causes.PEER_LOSS.search("\n".join(self.lines))
        return PEER if aborted and told else DIED

    @property
    def order(self) -> tuple[int, float, float, int]:
        """Sorts the culprit to the front: by kind, time as far as the rank told one, order seen."""
        told = self.error is not None and self.kind in (OWN, PEER) and self.error.get("time")
        seen = self.row.order if self.row else float("inf")
        return (self.kind, float(told) if told else float("inf"), seen, self.rank)

    def failure(self, node: str, oom_kills: int | None, *, secondary: bool) -> Failure:
        """As told to people and programs."""
        code, name = self._code_and_signal()
        cause, place = self.cause, ""
        if self.error is not None:
            place = str(self.error.get("place", ""))
        elif self.kind == CLOSED:
            cause = f"ended by the launcher with {name or 'SIGTERM'} after the first failure"
        elif name:
            cause = causes.of_signal(name, self.lines, oom_kills)
            place = place_of_crash(self.text)
        elif not cause:
            cause = f"exited with code {code}, without a Python exception"
        hint = str((self.error or {}).get("hint", ""))
        return Failure(
            rank=self.rank,
            local_rank=self.row.local_rank if self.row else (self.error or {}).get("local_rank"),
            node=node,
            exit_code=code,
            signal=name,
            cause=cause,
            place=place,
            log=self.log,
            lines=tuple(self.lines),
            secondary=secondary,
            hint=hint or causes.hint(cause, self.cause),
        )

    def _code_and_signal(self) -> tuple[int | None, str | None]:
        if self.error is not None:
            code = self.error.get("exit_code")
            return (code if isinstance(code, int) else 1), None
        if self.row is None:
            return None, None
        return shell_code(self.row.code)


def shell_code(returncode: int) -> tuple[int, str | None]:
    """`(137, "SIGKILL")` for -9, `(3, None)` for 3."""
    if returncode < 0:
        return 128 - returncode, causes.signal_name(-returncode)
    return returncode, None


def _errors(attempt_dir: str, world_size: int) -> dict[int, dict[str, Any]]:
    """What the ranks wrote down: for us, or, where that is missing, for torch."""
    found: dict[int, dict[str, Any]] = {}
    for path in glob.glob(
        os.path.join(glob.escape(attempt_dir), "elastic", "**", "error.json"), recursive=True
    ):
        local = os.path.basename(os.path.dirname(path))
        error = _from_torch(read_json(path))
        if local.isdigit() and error:
            found[int(local)] = {**error, "local_rank": int(local)}
    for rank in range(world_size):
        error = read_json(os.path.join(attempt_dir, f"rank-{rank}.error.json"))
        if isinstance(error, dict):
            found[rank] = error
    return found


def _from_torch(error: Any) -> dict[str, Any] | None:
    """Torch's schema as ours.  Its time is a whole second: the last moment of that is taken."""
    message = error.get("message") if isinstance(error, dict) else None
    if not isinstance(message, dict):
        return None
    kind, _, text = str(message.get("message", "")).partition(": ")
    stamp = str((message.get("extraInfo") or {}).get("timestamp", ""))
    return {
        "type": kind,
        "message": text,
        "time": float(stamp) + 1 if stamp.isdigit() else None,
        "exit_code": message.get("errorCode", 1),
    }


def _launcher(node: str, returncode: int, log: str, text: str) -> Failure:
    """No rank is to blame: nobody was started, or the launcher itself was ended."""
    lines = last_lines(text)
    code, name = shell_code(returncode)
    cause = f"the launcher was ended by {name}" if name else causes.of_launcher(lines)
    return Failure(
        rank=None,
        local_rank=None,
        node=node,
        exit_code=code,
        signal=name,
        cause=cause,
        place="",
        log=log,
        lines=tuple(lines),
        secondary=False,
        hint=causes.hint(cause),
    )
