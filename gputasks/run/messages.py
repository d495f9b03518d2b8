"""From what an attempt left to the error that a user reads."""

from __future__ import annotations

import errno
import glob
import os
import signal
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from gputasks.artifacts.outputs import files_of
from gputasks.errors import GputasksError, MachineError, RunFailedError
from gputasks.launch.failures import find_cause
from gputasks.launch.logs import last_lines, read_end
from gputasks.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gputasks.launch.failures import Failure
    from gputasks.launch.local import Attempt
    from gputasks.run.attempt import AttemptResult
    from gputasks.specs import Outcome, Placement, Run

TAIL = 20


class OutcomeError(Exception):
    """An attempt that did not succeed: its outcome, the error to show, the failures as data."""

    def __init__(
        self, outcome: Outcome, error: GputasksError, failures: list[dict[str, Any]]
    ) -> None:
        super().__init__(error.message)
        self.outcome = outcome
        self.error = error
        self.failures = failures


def machine_error(error: OSError) -> MachineError:
    """An OSError that nobody foresaw, as one line."""
    where = f": `{error.filename}`" if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return MachineError(
            f"no space left on the disk{where}",
            hint="`df -h .` shows the disk; `.gputasks/trash` and `.gputasks/runs` may be removed",
        )
    return MachineError(f"{(error.strerror or str(error)).lower()}{where}")


def explain(
    task: str, run: Run, attempt: Attempt, placement: Placement, result: AttemptResult, root: str
) -> OutcomeError:
    """The first failure first, its consequences named as such."""
    if result.error:
        error: GputasksError = MachineError(f"`{task}` could not be started: {result.error}")
        return OutcomeError("failed", error, [])
    if run.kind == "train":
        failures = find_cause(
            attempt.folder,
            world_size=placement.world_size,
            agent_returncode=result.returncode,
            node=placement.nodes[0].node.name,
            oom_kills=result.oom_kills,
        )
        # Those that were killed because of another's failure are no culprits.
        failures.sort(key=lambda f: f.rank in result.ended_by_us)
        failures = [
            replace(f, secondary=f.secondary or f.rank in result.ended_by_us) for f in failures
        ]
    else:
        failures = []
    if result.outcome != "failed":
        return _stopped(task, run, attempt, result, failures, root)
    if not failures:
        return _command_failed(task, run, attempt, result, root)
    first, *others = failures
    facts = []
    if first.cause:
        facts.append(first.cause)
    if first.place:
        facts.append(f"at {first.place}")
    primary = [f for f in others if not f.secondary]
    count = 1 + len(primary)
    follow_ups = placement.world_size - count
    plural = "s" if count != 1 else ""
    if placement.world_size > 1:
        stopped = (
            f"; {follow_ups} other worker{'s' if follow_ups != 1 else ''} ended as a consequence"
            if follow_ups
            else ""
        )
        facts.append(f"first of {count} failure{plural}{stopped}")
    if first.lines:
        facts += ["last lines:", *(f"  {line}" for line in first.lines[-TAIL:])]
    facts.append(f"log: {os.path.relpath(first.log or attempt.output, root)}")
    error = RunFailedError(
        f"`{task}` failed: {_who(first)} {_how(first.exit_code, first.signal)}",
        facts=facts,
        hint=first.hint or f"`gputasks logs {task}` shows the whole log",
    )
    return OutcomeError("failed", error, [asdict(f) for f in failures])


def _who(failure: Failure) -> str:
    if failure.rank is None:
        return f"the launcher on node `{failure.node}`"
    return f"rank {failure.rank} on node `{failure.node}` (local_rank {failure.local_rank})"


def _how(exit_code: int | None, signal_name: str | None) -> str:
    if signal_name:
        return f"was killed by {signal_name}"
    return "failed" if exit_code is None else f"exited with code {exit_code}"


def _command_failed(
    task: str, run: Run, attempt: Attempt, result: AttemptResult, root: str
) -> OutcomeError:
    code, name = result.returncode, ""
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        code = 128 - code
    lines = last_lines(read_end(attempt.output), TAIL)
    what = "pipeline" if run.shell else f"`{run.argv[0]}`" if run.argv else "the launcher"
    hint = f"`gputasks logs {task}` shows the whole log"
    if name == "SIGKILL":
        hint = "SIGKILL is often the kernel's answer to too little memory: `dmesg | tail` tells"
    error = RunFailedError(
        f"`{task}` failed: {what} {_how(code, name)}",
        facts=[*(["last lines:", *(f"  {t}" for t in lines)] if lines else []),
               f"log: {os.path.relpath(attempt.output, root)}"],
        hint=hint,
    )  # fmt: skip
    entry = {"rank": None, "exit_code": code, "signal": name or None, "lines": lines}
    return OutcomeError("failed", error, [entry])


def _stopped(
    task: str,
    run: Run,
    attempt: Attempt,
    result: AttemptResult,
    failures: list[Failure],
    root: str,
) -> OutcomeError:
    texts = {
        "timed_out": f"`{task}` timed out after {format_duration(run.max_duration_s or 0)}",
        "lost": f"`{task}` was lost",
        "interrupted": f"`{task}` was interrupted",
    }
    resumes = run.resume and run.artifacts
    error = RunFailedError(
        texts[result.outcome],
        facts=[
            *result.text.splitlines(),
            f"log: {log_of(os.path.dirname(attempt.folder), run, root)}",
        ],
        hint=f"`doit {task}` resumes from its newest checkpoint" if resumes else "",
    )
    return OutcomeError(result.outcome, error, [asdict(f) for f in failures])


def log_of(folder: str, run: Run, root: str) -> str:
    """The log that a person would open first, relative to the project."""
    attempts = sorted(glob.glob(os.path.join(glob.escape(folder), "attempt-*")))
    name = "rank-0.log" if run.kind == "train" else "output.log"
    return os.path.relpath(os.path.join(attempts[-1] if attempts else folder, name), root)


def best_checkpoint(facts: Mapping[str, Any], root: str) -> str | None:
    """The best checkpoint that the framework told of, relative to the project."""
    path = facts.get("best_model_path")
    return os.path.relpath(path, root) if path and os.path.exists(path) else None


def artifact_list(run: Run) -> list[dict[str, Any]]:
    """Name, path and size in bytes of each artifact, for the event."""
    return [
        {"name": a.name, "path": a.path, "bytes": sum(map(os.path.getsize, files_of(a.path)))}
        for a in run.artifacts
    ]
