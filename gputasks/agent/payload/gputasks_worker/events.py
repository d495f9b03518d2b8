"""One JSON line at a time, appended to the file that $GPUTASKS_EVENTS names.

The format is that of `gputasks.events`, which is not there where gputasks is not installed.
"""

from __future__ import annotations

import json
import math
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VARIABLE = "GPUTASKS_EVENTS"


def append(path: str, kind: str, **fields: Any) -> None:
    """Append one event; fields that are None are left out.

    Never raises for a full disk or a folder that is gone: a training must not die of its diary.
    """
    event = {"t": round(time.time(), 3), "kind": kind}
    event.update((name, plain(value)) for name, value in fields.items() if value is not None)
    line = json.dumps(event, separators=(",", ":"), default=str).encode() + b"\n"
    try:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            os.write(fd, line)
        finally:
            os.close(fd)
    except OSError:
        pass


def plain(value: Any) -> Any:
    """The value without NaN and infinities, for which JSON has no word: they become strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value


def number(value: Any) -> float | None:
    """A number, or a tensor of one, as a float; None for everything else."""
    if isinstance(value, (str, bytes)):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        return None
