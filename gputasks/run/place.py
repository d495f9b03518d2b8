"""Where a run takes place: on the host, or in a container, which is then imported and no sooner."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gputasks.launch.local import local_command
from gputasks.proc import interrupts
from gputasks.run.attempt import run_attempt

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gputasks.events import EventLog
    from gputasks.launch.local import Attempt
    from gputasks.layout import Layout
    from gputasks.leases import TaskLock
    from gputasks.run.attempt import AttemptResult
    from gputasks.run.containers import Box
    from gputasks.run.job import Job
    from gputasks.secrets import Secrets
    from gputasks.specs import Command, Gpu, Placement, Run


def box_of(run: Run, layout: Layout) -> Box | None:
    """The engine and the image of a run that has one.

    Raises:
        MachineError: no engine answers, it is another machine's, or it has no such image.
        ConfigError: the image has to be built first.

    """
    if run.image is None:
        return None
    from gputasks.run.containers import box_for

    return box_for(run, layout)


def check_gpus(run: Run, layout: Layout, gpus: Sequence[Gpu]) -> None:
    """The leased GPUs can run what is in the image.

    Raises:
        MachineError: they cannot.

    """
    if run.image is not None and gpus:
        from gputasks.run import containers

        containers.check_gpus(run, layout, gpus)


def command_of(
    job: Job,
    placement: Placement,
    attempt: Attempt,
    box: Box | None,
    *,
    python: str,
    environ: Mapping[str, str],
    env: Mapping[str, str],
) -> Command:
    """What an attempt starts.

    Raises:
        OSError: a folder that a container needs cannot be made.

    """
    if box is None:
        root = os.path.abspath(job.layout.root)
        return local_command(
            job.run, placement, attempt, root=root, python=python, environ=environ, env=env
        )
    from gputasks.run.containers import command_in

    return command_in(
        box,
        job.run,
        placement,
        attempt,
        layout=job.layout,
        task=job.task,
        inputs=job.inputs,
        python=python,
        env=env,
    )


def run_there(
    run: Run,
    command: Command,
    attempt: Attempt,
    *,
    world_size: int,
    keep_fds: tuple[int, ...],
    log: EventLog,
    lock: TaskLock,
    deadline: float | None,
    secrets: Secrets,
    gpus: Sequence[Gpu],
) -> AttemptResult:
    """An attempt in processes of its own, or in this one; arguments as of `run_attempt`.

    Raises:
        OSError: the attempt's folder cannot be written.
        MachineError: this process cannot take it.

    """
    if run.runtime == "inline":
        from gputasks.run.inline import run_inline

        return run_inline(
            run, command, attempt, log=log, lock=lock, deadline=deadline, secrets=secrets
        )
    return run_attempt(
        run,
        command,
        attempt,
        world_size=world_size,
        keep_fds=keep_fds,
        log=log,
        lock=lock,
        deadline=deadline,
        secrets=secrets,
        gpus=gpus,
    )


def reap(box: Box, layout: Layout, note: Callable[[str], None]) -> None:
    """Remove what earlier runs of the project had to leave, telling each."""
    from gputasks.run import containers

    containers.reap(box, layout, note)


def remove(box: Box, job: Job) -> None:
    """Remove what the holder of this run's container had no time for."""
    from gputasks.run import containers

    with interrupts.deferred():
        containers.remove(box, job.run_id, job.layout)
