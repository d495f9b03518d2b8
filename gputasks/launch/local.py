"""A run on this machine as a `Command`: still data, for the conductor to start."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gputasks import plan
from gputasks.settings.flags import param_argv, resolve_resume
from gputasks.specs import Command

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gputasks.specs import Placement, Run

AGENT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "agent")
SHIM = os.path.join(AGENT, "shim.py")
PAYLOAD = os.path.join(AGENT, "payload")


BARE_PYTHON = ("python", "python3")
"""As the program of a command these mean the task's interpreter: `.venv/bin/doit` in a venv that is
not activated would otherwise find another one."""

PYTHON_INSIDE = "python3"
"""The interpreter of an image that is not told another one: its PATH decides."""


@dataclass(frozen=True)
class Attempt:
    """One start of a run: where its files go and what it resumes from.  Paths are absolute."""

    run_id: str
    number: int
    folder: str
    resume: str | None = None

    @property
    def mark(self) -> str:
        """What every process of the attempt carries in its environment as GPUTASKS_RUN.

        The folder is unlike that of any other attempt on the machine, and tells a person who finds
        the process where it belongs.
        """
        return self.folder

    @property
    def output(self) -> str:
        """What the launcher, or a command, prints."""
        return os.path.join(self.folder, "output.log")

    @property
    def events(self) -> str:
        """Folder of one event file per rank."""
        return os.path.join(self.folder, "events")

    @property
    def params(self) -> str:
        """The typed params as JSON."""
        return os.path.join(self.folder, "params.json")

    @property
    def elastic(self) -> str:
        """Torch's own log folder."""
        return os.path.join(self.folder, "elastic")

    @property
    def container(self) -> str:
        """How its container ended, when it had one."""
        return os.path.join(self.folder, "container.json")

    def rank_log(self, rank: int) -> str:
        """Everything that one worker prints."""
        return os.path.join(self.folder, f"rank-{rank}.log")


def local_command(
    run: Run,
    placement: Placement,
    attempt: Attempt,
    *,
    root: str,
    python: str,
    environ: Mapping[str, str],
    env: Mapping[str, str],
) -> Command:
    """The process to start on this machine.

    Args:
        run: what the user asked for.
        placement: one node.
        attempt: folders and the checkpoint to resume from.
        root: absolute folder of dodo.py.
        python: interpreter of the workers.
        environ: the caller's environment.
        env: the task's own variables, secrets resolved.

    """
    (share,) = placement.nodes
    training = run.kind == "train"
    full = plan.inherited(environ)
    full.setdefault("OMP_NUM_THREADS", plan.thread_env(run, share)["OMP_NUM_THREADS"])
    full.update(plan.gpu_env(run.resources, share.gpus, ask=training))
    full["PYTHONUNBUFFERED"] = "1"
    full.update(env)
    full["PYTHONPATH"] = os.pathsep.join(filter(None, [PAYLOAD, full.get("PYTHONPATH", "")]))
    full.update(attempt_env(run, placement, attempt))
    cwd = os.path.join(root, run.cwd) if run.cwd else root
    return Command(share.node.name, tuple(argv_of(run, attempt, root, python)), full, cwd)


def attempt_env(run: Run, placement: Placement, attempt: Attempt) -> dict[str, str]:
    """What an attempt tells its processes, wherever they run."""
    env = {
        "GPUTASKS_ATTEMPT": str(attempt.number),
        "GPUTASKS_PARAMS": attempt.params,
        "GPUTASKS_EVENTS_DIR": attempt.events,
        "GPUTASKS_LOG_DIR": attempt.folder,
    }
    if attempt.resume:
        env["GPUTASKS_RESUME_CKPT"] = attempt.resume
    if run.kind == "train" and run.runtime != "inline":
        env.update(
            plan.elastic_env(
                placement,
                run_id=f"{attempt.run_id}-{attempt.number}",
                log_dir=attempt.elastic,
                grace_s=run.stop_grace_s,
            )
        )
    else:
        env["GPUTASKS_EVENTS"] = os.path.join(attempt.events, "rank-0.jsonl")
    return env


def argv_of(run: Run, attempt: Attempt, root: str, python: str, *, shim: str = SHIM) -> list[str]:
    """The command line: torch's launcher with the script behind the shim, or the program."""
    args = resolve_resume(run.args, attempt.resume)
    if run.kind == "train":
        script = os.path.join(root, run.script) if run.cwd else run.script
        flags = param_argv(run.params, run.params_style)
        # Leading words go first: a sub-command (`fit`) must, and after a flag that takes several
        # values they would be taken for some of those.
        first = next((i for i, a in enumerate(args) if a.startswith("-")), len(args))
        command = [*args[:first], *flags, *args[first:]]
        if run.runtime == "inline":
            return [python, script, *command]
        return [python, "-m", "torch.distributed.run", shim, script, *command]
    if run.shell:
        return ["bash", "-o", "pipefail", "-c", *run.argv]
    program, *rest = resolve_resume(run.argv, attempt.resume)
    return [python if program in BARE_PYTHON else program, *rest, *args]
