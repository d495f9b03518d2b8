"""One attempt: start the command under its guard, follow it, end it when it must end."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gputasks.events import Follower
from gputasks.hints import hints
from gputasks.launch.memory import count_oom_kills
from gputasks.launch.stalls import StallWatch, collect_stacks, group_stacks
from gputasks.layout import write_json
from gputasks.nodes.sampler import sampling
from gputasks.proc import Guarded, Start, interrupts, kill_marked

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gputasks.events import Event, EventLog
    from gputasks.launch.local import Attempt
    from gputasks.leases import TaskLock
    from gputasks.proc import Ended
    from gputasks.secrets import Secrets
    from gputasks.specs import Command, Gpu, Outcome, Run

TICK_S = 0.05
FAIL_FAST_S = 10.0
"""After a worker failed, the others get this long to follow before they are killed."""

LAUNCHER_S = 10.0
"""And the launcher this long to tell how they ended."""

TOLD = ("rank", "progress", "facts", "note")
"""What workers have a say in; their files may hold anything."""


@dataclass
class AttemptResult:
    """How an attempt ended.

    Args:
        outcome: `succeeded` means only that the process ended well; artifacts are not looked at.
        returncode: of the launcher or command; negative is a signal.
        signum: the signal that the driver got, if it was one that ended it.
        text: one line for `interrupted`, `timed_out` and `lost`.
        metrics: the last values of rank 0.
        error: why nothing could be started.
        ended_by_us: ranks that were killed because another had failed.
        facts: what the framework told of the training: batch, precision, best checkpoint.
        oom_kills: how often the kernel killed for lack of memory meanwhile, None when not known.
        gpus: what the leased GPUs did, see `GpuSampler.summary`.

    """

    outcome: Outcome
    returncode: int
    duration_s: float
    signum: int | None = None
    text: str = ""
    metrics: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    ended_by_us: list[int] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    oom_kills: int | None = None
    gpus: list[dict[str, Any]] = field(default_factory=list)


def run_attempt(
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
    gpus: Sequence[Gpu] = (),
) -> AttemptResult:
    """Start, follow, end.

    Args:
        run: for its grace and stall limit.
        command: what to start.
        attempt: where its files go; the folders are made here.
        world_size: number of workers that will report.
        keep_fds: lock files that the guard holds until its sweep is over.
        log: the run's event log.
        lock: the task's lock, kept warm.
        deadline: monotonic time at which the run has lasted long enough.
        secrets: what must not be seen of it.
        gpus: the leased ones, whose load is sampled.

    Raises:
        OSError: the attempt's folder cannot be written.

    """
    os.makedirs(attempt.events)
    write_json(attempt.params, dict(run.params), sync=False)
    follow = _Follow(run, attempt, world_size, log)
    follow.hide = secrets.hide
    ranks = range(world_size if run.kind == "train" else 0)
    logs = tuple(attempt.rank_log(rank) for rank in ranks)
    with interrupts.deferred():
        before = count_oom_kills()
        began = time.monotonic()
        guard = Guarded.start(
            Start(
                argv=command.argv,
                env=command.env,
                cwd=command.cwd,
                output=attempt.output,
                mark=attempt.mark,
                grace_s=run.stop_grace_s,
                status=os.path.join(attempt.folder, "guard.json"),
                keep_fds=keep_fds,
                hide=secrets.hide_in(attempt.folder, logs, attempt.events),
            )
        )
        ended = None
        with sampling(gpus, attempt.folder, mark=attempt.mark, log=log) as sampler:
            while ended is None:
                ended = guard.wait(TICK_S)
                lock.heartbeat()
                follow.look()
                if sampler is not None:
                    sampler.look()
                _end_if_needed(guard, follow, deadline)
        follow.look()
        secrets.clean(attempt.folder, (attempt.output, *logs))
        duration_s = round(time.monotonic() - began, 3)
        after = count_oom_kills()
        kills = None if before is None or after is None else after - before
        result = _result(ended, follow, duration_s, kills)
        result.gpus = [] if sampler is None else sampler.summary()
        return result


class _Follow:
    """Reads the workers' events, passes them on, and keeps what the end needs to know."""

    def __init__(self, run: Run, attempt: Attempt, world_size: int, log: EventLog) -> None:
        self.run = run
        self.attempt = attempt
        self.log = log
        self.outcome: Outcome | None = None
        self.text = ""
        self.metrics: dict[str, Any] = {}
        self.facts: dict[str, Any] = {}
        self.killing = False
        self.patience = 0.0
        self.ended_by_us: list[int] = []
        self.signum: int | None = None
        self._failed_at: float | None = None
        self._output_read = 0
        ranks = range(world_size)
        self._followers = {
            r: Follower(os.path.join(attempt.events, f"rank-{r}.jsonl")) for r in ranks
        }
        self._pids: dict[int, int] = {}
        self._stalls = StallWatch(ranks, run.stall_timeout_s) if run.kind == "train" else None
        self._looked = 0.0
        self.hide: Callable[[Any], Any] = lambda value: value
        self._hinted: set[str] = set()

    def look(self) -> None:
        """Pass on what is new."""
        for rank, follower in self._followers.items():
            for event in follower.events():
                if event["kind"] in TOLD:
                    with contextlib.suppress(ArithmeticError, TypeError, ValueError):
                        self._pass_on(rank, event)
        now = time.monotonic()
        if self._stalls is not None and now - self._looked >= 1.0:
            self._looked = now
            for rank in self._followers:
                with contextlib.suppress(OSError):
                    info = os.stat(self.attempt.rank_log(rank))
                    self._stalls.output(rank, info.st_size, now)

    def _pass_on(self, rank: int, event: Event) -> None:
        event = {**self.hide(event), "kind": event["kind"]}
        if self._stalls is not None:
            self._stalls.activity(rank, time.monotonic())
        if event["kind"] == "rank":
            self._pids[rank] = int(event.get("pid", 0))
            if self._stalls is not None:
                self._stalls.started(rank, self._pids[rank])
        if event["kind"] == "progress":
            if rank != 0:
                return  # a sign of life, nothing to show
            self.metrics.update(event.get("metrics") or {})
        if event["kind"] == "facts" and rank == 0:
            self.facts.update({k: v for k, v in event.items() if k not in ("t", "kind", "rank")})
        fields = {k: v for k, v in event.items() if k not in ("t", "kind", "rank")}
        self.log.write(event["kind"], rank=rank, **fields)
        if event["kind"] == "facts" and rank == 0 and self.attempt.number == 0:
            for text in hints(known_facts(self.run, len(self._followers), self.facts)):
                if text not in self._hinted:  # facts are told twice
                    self._hinted.add(text)
                    self.log.write("note", level="info", text=text)

    def failed_for(self) -> float:
        """Seconds since a worker was seen to have failed."""
        if self._failed_at is None:
            written = any(
                os.path.exists(os.path.join(self.attempt.folder, f"rank-{r}.error.json"))
                for r in self._followers
            )
            if written or self._launcher_ends_workers():
                self._failed_at = time.monotonic()
            return 0.0
        return time.monotonic() - self._failed_at

    def _launcher_ends_workers(self) -> bool:
        """torch's agent saw a worker end badly: it says so, then waits 30 s for stubborn ones.

        That wait is fixed in torch 2.13, `--shutdown-timeout` is only for signals to the agent.
        """
        if self.run.kind != "train":
            return False  # its output is the user's, and may be long
        try:
            with open(self.attempt.output, "rb") as file:
                file.seek(self._output_read)
                data = file.read(1 << 20)
        except OSError:
            return False
        self._output_read += len(data)
        return b"closing signal SIGTERM" in data

    def end_workers(self) -> None:
        """Kill the workers that outlive another's failure."""
        mark = self.attempt.mark
        killed = kill_marked(self._pids.values(), mark)
        self.ended_by_us = [r for r, pid in self._pids.items() if pid in killed]

    def terminated(self) -> list[int]:
        """Ranks whose shim saw a SIGTERM, whatever became of it: Lightning exits with 0."""
        return [
            r
            for r in self._followers
            if os.path.exists(os.path.join(self.attempt.folder, f"rank-{r}.signal"))
        ]

    def stalled(self) -> str:
        """What is known of a hang, with the stacks of all workers; empty while all is well."""
        if self._stalls is None:
            return ""
        silent = self._stalls.silent(time.monotonic())
        if not silent:
            return ""
        stacks = collect_stacks(self.attempt.folder, self._pids)
        ranks = ", ".join(map(str, silent))
        plural = "s" if len(silent) > 1 else ""
        limit = self.run.stall_timeout_s or 0
        return f"no sign of life from rank{plural} {ranks} for {limit:g} s\n{group_stacks(stacks)}"


def known_facts(
    run: Run, world_size: int, framework: dict[str, Any], **more: Any
) -> dict[str, Any]:
    """The facts of a run on this node, as `hints` takes them."""
    cores = len(os.sched_getaffinity(0))
    return {
        "world_size": world_size,
        "local_world_size": world_size,
        "cpu_count": cores,
        "params": run.params,
        "framework": framework,
        **more,
    }


def _end_if_needed(guard: Guarded, follow: _Follow, deadline: float | None) -> None:
    """Signals first, then time, then failure, then silence."""
    if interrupts.requested is not None:
        if follow.outcome is None:
            follow.outcome = "interrupted"
            follow.signum = interrupts.requested
            grace = follow.run.stop_grace_s
            follow.log.write(
                "note",
                level="warning",
                text=f"stopping: SIGTERM sent, {grace:g} s to write a checkpoint;"
                " a second Ctrl-C kills at once",
            )
            guard.stop()
        if interrupts.urgent and not follow.killing:
            follow.killing = True
            guard.kill()
        return
    if follow.outcome is not None:
        return
    if deadline is not None and time.monotonic() > deadline:
        follow.outcome = "timed_out"
        follow.text = "ran longer than its `max_duration`"
        guard.stop()
    elif follow.failed_for() > min(FAIL_FAST_S, follow.run.stop_grace_s) + follow.patience:
        # First only the workers: their launcher then tells who failed how, and ends.
        if follow.patience:
            follow.killing = True
            guard.kill()
        else:
            follow.patience = LAUNCHER_S
            follow.end_workers()
    elif not follow.patience:
        text = follow.stalled()
        if text:
            follow.outcome, follow.text = "lost", text
            guard.stop()


def _result(
    ended: Ended, follow: _Follow, duration_s: float, oom_kills: int | None
) -> AttemptResult:
    outcome, text = follow.outcome, follow.text
    if outcome is None:
        terminated = follow.terminated()
        if ended.stopped and not follow.killing:
            outcome, text = "interrupted", f"its guard was ended: {ended.stopped}"
        elif ended.returncode != 0 or ended.error:
            outcome = "failed"
        elif terminated:
            ranks = ", ".join(map(str, terminated))
            outcome = "interrupted"
            text = f"rank {ranks} was told to stop by SIGTERM, then ended with code 0"
        else:
            outcome = "succeeded"
    return AttemptResult(
        outcome,
        ended.returncode,
        duration_s,
        follow.signum,
        text,
        follow.metrics,
        ended.error,
        follow.ended_by_us,
        follow.facts,
        oom_kills,
    )
