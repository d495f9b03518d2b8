"""What is asked of the conductor, and what it gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gputasks.proc import interrupts

if TYPE_CHECKING:
    from gputasks.environments import Held
    from gputasks.fingerprint import Digests
    from gputasks.layout import Layout
    from gputasks.receipts.inputs import Inputs
    from gputasks.specs import Run


@dataclass
class Job:
    """What to do: the definition, the fingerprint taken before, and why it runs.

    `forced`: neither the cache nor an earlier attempt counts.  `unrecorded`: only doit's own record
    is missing, so an intact receipt is enough.  `environment`: the task's own, once it is there,
    held while the task runs.
    """

    task: str
    run: Run
    layout: Layout
    digests: Digests
    inputs: Inputs
    reasons: list[str]
    run_id: str
    forced: bool = False
    unrecorded: bool = False
    environment: Held | None = None


@dataclass
class Done:
    """A finished run, or the one that another process finished while this one waited."""

    run_id: str
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)


def interrupted() -> bool:
    """True once a signal has asked this process to stop."""
    return interrupts.requested is not None
