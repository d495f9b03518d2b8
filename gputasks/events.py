"""What can happen in a run, one JSON line each.

Workers can only send bytes: each rank appends lines to a file of its own, the conductor appends to
`events.jsonl` of the run, and whoever wants to know follows files.  A line that cannot be read is
skipped, never fatal: it is a half-written line of a dead process.

Kinds and their fields (all optional but `t` and `kind`; `t` is Unix time in seconds):

========== ======================================================================================
kind       fields
========== ======================================================================================
started    task, run, reasons [text], world_size, log (path)
phase      phase: environment | lease | launch | train | verify | publish | pull | build | push;
           text: what is being done, shown as a line
placed     nodes [{node, gpus [str], nproc}], world_size, nnodes, backend
rank       rank, world_size, pid: this worker has started
progress   rank, step, total, epoch, max_epochs, rate (steps/s), eta_s, metrics {name: number}
note       text, level: info | warning
waiting    text: waits for a lease or a lock
attempt    attempt, cause, resume
failure    rank, node, local_rank, exit_code, signal, cause, place, log, lines [text], secondary
gpu        gpus [{id, util (%), mem_mib, mem_total_mib}]: what the leased ones do, every 5 s
facts      batch_size, global_batch_size, precision, num_workers, device, best_model_path, …
finished   outcome, exit_code, duration_s, artifacts [{name, path, bytes}], checkpoint, metrics,
           gpus [{id, uuid, utilisation (median, %), memory_mib (most), samples}], message
========== ======================================================================================
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Event = dict[str, Any]

MAX_LINE = 65536
"""A line longer than this is cut off by its writer: appends must stay atomic in practice."""


def encode(kind: str, **fields: Any) -> bytes:
    """One line, ready to be appended.  NaN and infinities become strings: JSON lacks them."""
    event: Event = {"t": round(time.time(), 3), "kind": kind}
    event.update((k, v) for k, v in fields.items() if v is not None)
    try:
        text = json.dumps(event, separators=(",", ":"), allow_nan=False, default=str)
    except ValueError:
        text = json.dumps(_finite(event), separators=(",", ":"), default=str)
    return text.encode("utf-8", "backslashreplace")[:MAX_LINE] + b"\n"


def _finite(value: Any) -> Any:
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):  # noqa: PLR0124  NaN is the value unlike itself
        return str(value)
    if isinstance(value, dict):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return value


def decode(line: bytes) -> Event | None:
    """The event of a line, or None when the line is none."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("kind"), str) else None


PART = 1 << 18
"""So many bytes of a file are looked at at a time."""


class EventLog:
    """Appends events to a file.  Never raises for a full disk: a run must not die of its diary."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.broken: OSError | None = None
        self.hide: Callable[[Any], Any] | None = None
        """What takes secrets out of the fields."""

    def write(self, kind: str, **fields: Any) -> None:
        """Append one event."""
        if self.hide is not None:
            fields = self.hide(fields)
        try:
            fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                os.write(fd, encode(kind, **fields))
            finally:
                os.close(fd)
        except OSError as error:
            self.broken = error


class Follower:
    """Reads what was appended to a file since the last look; waits for nothing.

    In parts, so that a file of any size takes no memory; a line that is longer than any event may
    be is none.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._offset = 0
        self._rest = b""

    def events(self) -> Iterator[Event]:
        """New events, oldest first."""
        with contextlib.suppress(OSError), open(self.path, "rb") as file:
            file.seek(self._offset)
            while data := file.read(PART):
                self._offset += len(data)
                *lines, rest = (self._rest + data).split(b"\n")
                self._rest = rest if len(rest) <= 2 * MAX_LINE else rest[:1]
                for line in lines:
                    event = decode(line)
                    if event is not None:
                        yield event
