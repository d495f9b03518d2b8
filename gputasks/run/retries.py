"""Is a failure worth a further attempt, and how long to wait before it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from gputasks.proc import Interrupted, interrupts

if TYPE_CHECKING:
    from gputasks.run.messages import OutcomeError
    from gputasks.specs import Run

LONGEST_S = 300.0
_POLL_S = 0.1


def worth_it(run: Run, failure: OutcomeError) -> bool:
    """True when `retry_on` names the failure; without it, whatever is no stop and no timeout."""
    if failure.outcome == "interrupted":
        return False
    if not run.retry_on:
        return failure.outcome != "timed_out"
    names = _names(failure.failures[0]) if failure.failures else set()
    return bool({failure.outcome, *names} & set(run.retry_on))


def _names(first: dict[str, Any]) -> set[str]:
    """Its exit code, its signal, its exception with and without the module."""
    exception = str(first.get("cause") or "").partition(":")[0]
    found = {exception, exception.rpartition(".")[2], first.get("signal") or ""}
    if first.get("exit_code") is not None:
        found.add(str(first["exit_code"]))
    return found - {""}


def delay_s(run: Run, attempt: int) -> float:
    """Seconds before the attempt after number `attempt`: doubles each time."""
    return min(LONGEST_S, run.retry_delay_s * 2.0**attempt)


def back_off(seconds: float) -> None:
    """Wait.

    Raises:
        Interrupted: a signal came meanwhile.

    """
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if interrupts.requested is not None:
            raise Interrupted(interrupts.requested)
        time.sleep(min(_POLL_S, left))
