"""One run of one task: its lock first, and whoever holds it."""

from __future__ import annotations

import atexit
import contextlib
import os
import time
from typing import TYPE_CHECKING

from gputasks.artifacts import aside
from gputasks.errors import MachineError
from gputasks.events import EventLog
from gputasks.leases import lock_task
from gputasks.proc import Interrupted, interrupts
from gputasks.receipts import evaluate
from gputasks.receipts import receipt as receipts
from gputasks.run import messages, surroundings
from gputasks.run.course import Course
from gputasks.run.job import Done, interrupted

if TYPE_CHECKING:
    from gputasks.run.job import Job


RECORDS_S = 5.0
"""How long a process that ends waits for its threads to write down how their runs ended."""

_running: set[int] = set()


def conduct(job: Job) -> Done:
    """Make the artifacts of a task and its receipt.

    Raises:
        RunFailedError: the training, command or an artifact failed, timed out or was lost.
        MachineError: no GPUs, no space, no permission, no torch.
        Interrupted: a signal ended it; what it had written is kept for the next run.

    """
    try:
        job.layout.prepare()
    except OSError as error:
        path = job.layout.state
        raise MachineError(
            f"cannot write the state folder `{path}`: {error.strerror}",
            hint=f"`ls -ld {path}` shows who may write there",
        ) from error
    if not _running:
        # Under `doit -n N -P thread` runs are in daemon threads, which the end of the process cuts
        # off.  Handlers run last in, first out: the guards, started later, have ended by then.
        atexit.register(_wait_for_records)
    ticket = id(job)
    _running.add(ticket)
    try:
        return _locked(job)
    finally:
        _running.discard(ticket)


def _wait_for_records() -> None:
    deadline = time.monotonic() + RECORDS_S
    while _running and time.monotonic() < deadline:
        time.sleep(0.02)


def _locked(job: Job) -> Done:
    log = EventLog(os.path.join(job.layout.run(job.task, job.run_id), "events.jsonl"))
    waiting = _Waiting(job, log)
    lock = lock_task(
        job.layout.lock(job.task),
        task=job.task,
        run=job.run_id,
        waiting=waiting,
        cancelled=interrupted,
    )
    if lock is None:
        waiting.tidy()
        raise Interrupted(interrupts.requested or 2)
    try:
        if lock.waited or job.unrecorded:
            done = _made_meanwhile(job)
            if done is not None:
                waiting.tidy()
                return done
        if surroundings.decides(job):
            surroundings.prepare(job, log, lock)
            before, done = job.reasons, _made_meanwhile(job)
            if done is not None:
                log.write("note", text="it holds the same packages as before: nothing to do")
                return done
            if job.reasons != before:
                log.write("note", text=f"runs: {', '.join(job.reasons[:3])}")
        return Course(job, log, lock).go()
    except OSError as error:
        raise messages.machine_error(error) from error
    finally:
        if job.environment is not None:
            job.environment.release()
        lock.release()


class _Waiting:
    """Tells why nothing starts, also before the run has a folder of its own."""

    def __init__(self, job: Job, log: EventLog) -> None:
        self._folder = os.path.dirname(log.path)
        self._log = log
        self._job = job

    def __call__(self, text: str) -> None:
        with contextlib.suppress(OSError):
            os.makedirs(self._folder, exist_ok=True)
        self._log.write("waiting", text=text)

    def tidy(self) -> None:
        """The run did not take place."""
        aside.remove(self._folder)


def _made_meanwhile(job: Job) -> Done | None:
    job.digests.invalidate()
    found = receipts.read(job.layout, job.task)
    if found is None or job.forced:
        return None
    verdict = evaluate(job.run, job.task, job.layout, job.digests, found=found, recorded=found.run)
    if verdict.up_to_date:
        return Done(found.run, {k: dict(v) for k, v in found.outputs.items()}, dict(found.metrics))
    job.inputs, job.reasons = verdict.inputs, verdict.reasons
    return None
