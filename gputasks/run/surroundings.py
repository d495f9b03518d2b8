"""The task's own virtual environment, there before anything else starts."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gputasks import environments
from gputasks.receipts import take_inputs
from gputasks.run.preflight import check_inputs

if TYPE_CHECKING:
    from gputasks.cache import Entry
    from gputasks.environments import Environment
    from gputasks.events import EventLog
    from gputasks.leases import TaskLock
    from gputasks.run.job import Job

LOG = "environment.log"


def decides(job: Job) -> bool:
    """Whether only the environment can tell if there is anything to do.

    Its packages are unknown while it is not there, and requirements that leave a choice do not tell
    them.  Where they leave none, what was made with them counts without it.
    """
    unknown = job.run.has_environment and job.inputs["packages"] is None
    return unknown and not job.inputs["requirements"]["pinned"]


def prepare(job: Job, log: EventLog, lock: TaskLock) -> Environment:
    """Make the environment of a task, or wait until another task has; hold it.

    The receipt and what stands at the artifacts' paths are left alone: a requirement that cannot be
    installed costs nothing that was made.

    Raises:
        MachineError: an input is missing, a secret has no value, the installer failed.
        ConfigError: faulty requirements.
        Interrupted: a signal came meanwhile.

    """
    if job.environment is not None:
        return job.environment.environment
    check_inputs(job.inputs)
    own = environments.look(job.run, job.digests)
    folder = os.path.dirname(log.path)

    def say(kind: str, text: str) -> None:
        os.makedirs(folder, exist_ok=True)
        phase = {"phase": "environment"} if kind == "phase" else {}
        log.write(kind, text=text, **phase)

    there = own.ready()
    job.environment = environments.ensure(
        own, task=job.task, log=os.path.join(folder, LOG), say=say, tick=lock.heartbeat
    )
    if not there or job.inputs["packages"] is None:
        job.digests.invalidate()
        job.inputs = take_inputs(job.run, job.digests)
    return own


def adopt(job: Job, entry: Entry) -> None:
    """What comes from the cache was made with the packages of its run."""
    if job.inputs["packages"] is None:
        job.inputs["packages"] = entry.receipt["inputs"]["packages"]
