"""The receipt: two files per finished task.

`receipts/TASK.json` holds everything: the fingerprint taken before the run, digests of each
artifact, the run's id.  It is absent while the task runs and after it failed.  `digests/TASK` holds
the digests of the outputs only and is rewritten only when they change: what other tasks depend on.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import asdict, field
from typing import TYPE_CHECKING, Any

from gputasks.frozen import Frozen, spec
from gputasks.layout import read_json, write_json, write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gputasks.fingerprint import Digests
    from gputasks.layout import Layout
    from gputasks.receipts.inputs import Inputs
    from gputasks.specs import Artifact

VERSION = 1


@spec
class Receipt(Frozen):
    """What a finished task consumed and left.

    Args:
        task: the task's name.
        run: id of the run that made it.
        inputs: fingerprint before the run.
        outputs: artifact name -> `{"path", "digest"}`.
        finished: Unix time.
        duration_s: of the run, by a monotonic clock.
        metrics: the last reported ones.
        options: params that the command line gave, which the next one may not give.

    """

    task: str
    run: str
    inputs: Inputs
    outputs: Mapping[str, Mapping[str, str]]
    finished: float = 0.0
    duration_s: float = 0.0
    metrics: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    version: int = VERSION


def read(layout: Layout, task: str) -> Receipt | None:
    """The receipt of a task, or None when there is none or it cannot be read."""
    return _parse(read_json(layout.receipt(task)))


def _parse(value: Any) -> Receipt | None:
    if not isinstance(value, dict) or value.get("version") != VERSION:
        return None
    try:
        return Receipt(**value)
    except TypeError:
        return None


def digest_outputs(artifacts: Sequence[Artifact], digests: Digests) -> dict[str, dict[str, str]]:
    """Digest each artifact.

    Raises:
        OSError: an artifact is missing or cannot be read.

    """
    return {a.name: {"path": a.path, "digest": digests.path(a.path)} for a in artifacts}


def write(layout: Layout, receipt: Receipt) -> None:
    """Put the receipt into place; the digests first, so that a receipt never promises too much.

    Raises:
        OSError: no space or no permission; the task then counts as not done.

    """
    outputs = {k: v["digest"] for k, v in sorted(receipt.outputs.items())}
    text = json.dumps(outputs, indent=1).encode() + b"\n"
    path = layout.digests(receipt.task)
    if not _holds(path, text):
        write_whole(path, text)
    write_json(layout.receipt(receipt.task), asdict(receipt))
    with contextlib.suppress(FileNotFoundError):
        os.unlink(layout.forgotten(receipt.task))


def _holds(path: str, data: bytes) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read() == data
    except OSError:
        return False


def withdraw(layout: Layout, task: str, keep: str) -> None:
    """Take the receipt away before the task's outputs are touched; a copy goes to `keep`.

    Raises:
        OSError: the state folder cannot be written.

    """
    with contextlib.suppress(FileNotFoundError):
        os.replace(layout.receipt(task), keep)


def reinstate(layout: Layout, task: str, folder: str) -> None:
    """Undo `withdraw` for a run that ended before it touched anything.

    Raises:
        OSError: the state folder cannot be written.

    """
    with contextlib.suppress(FileNotFoundError):
        os.replace(os.path.join(folder, "previous-receipt.json"), layout.receipt(task))


def read_previous(folder: str) -> Receipt | None:
    """The receipt that was withdrawn when the run in this folder began."""
    return _parse(read_json(os.path.join(folder, "previous-receipt.json")))


def now() -> float:
    """Unix time, for the receipt."""
    return round(time.time(), 3)
