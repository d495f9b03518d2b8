"""The course of one run: record, artifacts aside, lease, attempts, verify, receipt.

Whatever way it ends, the lease is released, partial artifacts are put aside, the record says it.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Any

from gputasks import history, plan, secrets
from gputasks.artifacts import aside
from gputasks.cache.cache import Damaged
from gputasks.cache.copying import Cancelled
from gputasks.errors import GputasksError, MachineError, render
from gputasks.hints import hints
from gputasks.launch.local import Attempt
from gputasks.leases import lease_gpus
from gputasks.nodes import local_node
from gputasks.proc import Interrupted, interrupts
from gputasks.receipts import Receipt
from gputasks.receipts import receipt as receipts
from gputasks.receipts.inputs import changed_during
from gputasks.run import keeping, messages, place, preflight, retries, surroundings
from gputasks.run.attempt import AttemptResult, known_facts
from gputasks.run.job import Done, Job, interrupted
from gputasks.run.record import RunRecord
from gputasks.run.stage import Stage
from gputasks.run.vcs import git_state

if TYPE_CHECKING:
    from gputasks.cache import Entry
    from gputasks.events import EventLog
    from gputasks.leases import GpuLease, TaskLock
    from gputasks.run.attempt import AttemptResult
    from gputasks.run.containers import Box
    from gputasks.specs import Outcome, Placement


class Course:
    """The steps of one run, and what must be undone when one of them fails."""

    def __init__(self, job: Job, log: EventLog, lock: TaskLock) -> None:
        self.job = job
        self.run = job.run
        self.log = log
        self.lock = lock
        self.record = RunRecord(job.layout, job.task, job.run_id)
        self.stage = Stage(job.task, job.run, job.layout, self.record, job.digests, self._note)
        self.root = os.path.abspath(job.layout.root)
        self.lease: GpuLease | None = None
        self.result: AttemptResult | None = None
        self.box: Box | None = None

    def go(self) -> Done:
        """Take all steps in order.

        Raises:
            RunFailedError, MachineError, Interrupted: as `conduct`.

        """
        run, job = self.run, self.job
        entry = None if job.forced else keeping.kept(run, job.inputs, job.layout)
        if entry is not None:
            surroundings.adopt(job, entry)
        env, python = ({}, "") if entry is not None else self._ready()
        self.stage.check()
        previous = history.latest(job.layout, job.task)
        git = git_state(self.root)
        self._open_record(git)
        outcome: Outcome = "failed"
        failure: GputasksError | Interrupted | None = None
        try:
            if entry is not None:
                done = self._restore(entry)
                if done is not None:
                    return done
                env, python = self._ready()
            resume = self.stage.prepare(previous, forced=job.forced)
            if previous is not None and previous["outcome"] == "lost":
                # Its guards may have been killed before they could clean what scripts wrote.
                self.secrets.clean(job.layout.run(job.task, previous["run"]), ())
            placement = self._lease()
            place.check_gpus(run, job.layout, self.lease.gpus if self.lease else ())
            for text in self.secrets.notes:
                self._note(text)
            self._attempts(placement, resume, python=python, env=env)
            self.log.write("phase", phase="verify")
            self.stage.verify()
            return self._publish()
        except Interrupted as error:
            outcome, failure = "interrupted", error
            raise
        except messages.OutcomeError as error:
            outcome, failure = error.outcome, error.error
            raise error.error from None
        except GputasksError as error:
            failure = error
            raise
        except OSError as error:
            failure = messages.machine_error(error)
            raise failure from error
        finally:
            if self.lease is not None:
                self.lease.release()
            if failure is not None:
                self._close(outcome, failure)

    def _ready(self) -> tuple[dict[str, str], str]:
        """Variables and interpreter, when nothing speaks against a start."""
        job = self.job
        self.secrets = secrets.resolve(self.run.env, os.environ, self.root)
        self.log.hide = self.record.hide = self.secrets.hide
        env = self.secrets.env
        if self.run.has_environment:
            own = surroundings.prepare(job, self.log, self.lock)
            env = own.activated(env, self.secrets.environ)
        self.box = place.box_of(self.run, job.layout)
        return env, preflight.check(self.run, job.inputs, self.root, job.digests)

    # -- steps ---------------------------------------------------------------------------------

    def _open_record(self, git: dict[str, Any] | None) -> None:
        job = self.job
        self.record.open(self.run, job.inputs, job.reasons, git)
        receipts.withdraw(
            job.layout, job.task, os.path.join(self.record.folder, "previous-receipt.json")
        )
        self.log.write(
            "started",
            task=job.task,
            run=job.run_id,
            reasons=job.reasons,
            log=os.path.relpath(self.record.folder, self.root),
        )
        if self.box is not None:
            self.record.data["image"] = {**job.inputs["image"], "reference": self.box.image}
            place.reap(self.box, job.layout, self._note)
        if self.lock.previous.get("run"):
            died = self.lock.previous
            self._note(f"run {died['run']} (pid {died.get('pid')}) died; took over its lock")

    def _lease(self) -> Placement:
        run, job = self.run, self.job
        wanted = run.resources.gpu_count
        node = local_node(gpus=wanted not in (None, 0))
        for text in plan.shortfall(run, node):
            self._note(text)
        with interrupts.deferred():
            self.lease = lease_gpus(
                node.gpus,
                wanted,
                source=node.gpu_source,
                use_busy=run.resources.use_busy_gpus,
                task=job.task,
                run=job.run_id,
                waiting=lambda text: self.log.write("waiting", text=text),
                cancelled=interrupted,
            )
        if self.lease is None:
            raise Interrupted(interrupts.requested or 2)
        placement = plan.place(run, node, self.lease.gpus)
        backend = plan.backend(placement)
        self.record.place(placement, backend)
        if job.environment is not None:
            self.record.data["environment"] = job.environment.environment.name
        self.record.save()
        self.log.write(
            "placed",
            nodes=self.record.data["placement"],
            world_size=placement.world_size,
            nnodes=placement.nnodes,
            backend=backend if run.kind == "train" else None,
        )
        return placement

    def _attempts(
        self, placement: Placement, resume: str | None, *, python: str, env: dict[str, str]
    ) -> None:
        run = self.run
        limit = run.max_duration_s
        deadline = None if limit is None else time.monotonic() + limit
        for number in range(run.retries + 1):
            attempt = Attempt(
                self.job.run_id,
                number,
                os.path.join(self.record.folder, f"attempt-{number}"),
                resume,
            )
            if number:
                self.log.write("attempt", attempt=number, resume=resume)
            failure = self._attempt(attempt, placement, python=python, env=env, deadline=deadline)
            if failure is None:
                return
            if number == run.retries or not retries.worth_it(run, failure):
                raise failure
            wait = retries.delay_s(run, number)
            self._note(
                f"attempt {number} {failure.outcome}: {failure.error.message};"
                f" trying again in {wait:g} s"
            )
            self.lock.heartbeat()
            retries.back_off(wait)
            resume = self.stage.between(attempt.folder)

    def _attempt(
        self,
        attempt: Attempt,
        placement: Placement,
        *,
        python: str,
        env: dict[str, str],
        deadline: float | None,
    ) -> messages.OutcomeError | None:
        command = place.command_of(
            self.job,
            placement,
            attempt,
            self.box,
            python=python,
            environ=self.secrets.environ,
            env=env,
        )
        self.stage.look()
        self.log.write("phase", phase="train" if self.run.kind == "train" else "run")
        result = place.run_there(
            self.run,
            command,
            attempt,
            world_size=placement.world_size,
            keep_fds=self._held(),
            log=self.log,
            lock=self.lock,
            deadline=deadline,
            secrets=self.secrets,
            gpus=self.lease.gpus if self.lease else (),
        )
        self.result = result
        if self.box is not None and result.left:
            place.remove(self.box, self.job)
        entry: dict[str, Any] = {
            "number": attempt.number,
            "outcome": result.outcome,
            "returncode": result.returncode,
            "duration_s": result.duration_s,
            "resume": attempt.resume,
            "argv": list(command.argv),
        }
        self.record.data["attempts"].append(entry)
        if result.gpus:
            self.record.data["gpus"] = result.gpus
        if result.outcome == "succeeded":
            self.record.save()
            return None
        failure = messages.explain(self.job.task, self.run, attempt, placement, result, self.root)
        entry["failures"] = failure.failures
        self.record.save()
        if failure.failures:
            first = failure.failures[0]
            self.log.write("failure", **first)
            known = {"outcome": failure.outcome, "cause": first.get("cause")}
            for text in hints(known_facts(self.run, placement.world_size, result.facts, **known)):
                self._note(text, level="info")
        if result.signum is not None:
            raise Interrupted(result.signum)
        return failure

    def _restore(self, entry: Entry) -> Done | None:
        """Put artifacts of an earlier run with the same inputs in place; None when they are bad."""
        job = self.job
        folder = os.path.join(self.record.folder, "restored")
        self.log.write("phase", phase="restore")
        try:
            keeping.open_cache(job.layout).restore(entry, folder, interrupted)
        except Cancelled:
            raise Interrupted(interrupts.requested or 2) from None
        except Damaged:
            aside.remove(folder)
            self._note("its artifacts in the cache are damaged; making them anew")
            return None
        self.stage.clear_the_way()
        aside.put_back(self.run.artifacts, folder)
        aside.remove(folder)
        said = entry.receipt
        facts = {**entry.facts}
        if facts.get("best_model_path"):
            facts["best_model_path"] = os.path.join(self.root, facts["best_model_path"])
        return self._finish(
            dict(said["outputs"]),
            said["metrics"],
            facts,
            said["duration_s"],
            restored={"task": entry.task, "run": entry.run, "stored": entry.stored},
        )

    def _held(self) -> tuple[int, ...]:
        """Files whose locks must outlive us, if need be: they end with the last worker."""
        leased = self.lease.fds if self.lease else ()
        return (self.lock.fd, *leased, *(self.job.environment.fds if self.job.environment else ()))

    def _publish(self) -> Done:
        job, run = self.job, self.run
        assert self.result is not None  # noqa: S101  an attempt has succeeded
        job.digests.invalidate()
        digests = receipts.digest_outputs(run.artifacts, job.digests)
        for path in changed_during(job.inputs, run, job.digests):
            self._note(f"{path} changed during the run: `{job.task}` was made from the old one")
        if interrupts.requested is not None:
            raise Interrupted(interrupts.requested)
        result = self.result
        return self._finish(digests, result.metrics, result.facts, self.record.duration_s)

    def _finish(
        self,
        outputs: dict[str, dict[str, str]],
        metrics: dict[str, Any],
        facts: dict[str, Any],
        duration_s: float,
        restored: dict[str, Any] | None = None,
    ) -> Done:
        """Write down that all is well, in the order in which a crash does no harm."""
        job, run = self.job, self.run
        receipt = Receipt(
            task=job.task,
            run=job.run_id,
            inputs=job.inputs,
            outputs=outputs,
            finished=receipts.now(),
            duration_s=duration_s,
            metrics=metrics,
            options=run.given,
        )
        listed = messages.artifact_list(run)
        with interrupts.deferred():
            self.record.close(
                "succeeded",
                artifacts=outputs,
                bytes=sum(a["bytes"] for a in listed),
                metrics=metrics,
                facts=facts,
                restored=restored,
            )
            receipts.write(job.layout, receipt)
            job.digests.save()
            self.stage.empty_trash()
            if run.cache and run.artifacts and restored is None:
                self._keep(receipt, facts)
            self.log.write(
                "finished",
                outcome="succeeded",
                exit_code=0,
                duration_s=self.record.duration_s,
                artifacts=listed,
                checkpoint=messages.best_checkpoint(facts, self.root),
                metrics=metrics,
                restored=restored,
                gpus=self.record.data.get("gpus"),
            )
        return Done(job.run_id, outputs, metrics)

    def _keep(self, receipt: Receipt, facts: dict[str, Any]) -> None:
        """Begin to copy the artifacts into the cache.  Nothing that fails there fails the run."""
        with contextlib.suppress(OSError):
            keeper = keeping.Keeper(self.job.layout, receipt, facts)
            refusal = keeper.refusal()
            if refusal:
                self._note(f"artifacts are not kept in the cache: {refusal}", level="info")
            else:
                keeper.start()

    # -- the way out ---------------------------------------------------------------------------

    def _close(self, outcome: Outcome, failure: GputasksError | Interrupted) -> None:
        """Put partial artifacts aside and write down how it ended, as far as the disk allows."""
        partial: list[str] = []
        text = render(failure, prefix="") if isinstance(failure, GputasksError) else "interrupted"
        with contextlib.suppress(OSError, MachineError):
            partial = self.stage.clear()
        with contextlib.suppress(OSError):
            self.record.close(outcome, message=text, partial=partial)
        self.log.write(
            "finished",
            outcome=outcome,
            exit_code=failure.code if isinstance(failure, Interrupted) else failure.exit_code,
            duration_s=self.record.duration_s,
            message=text,
        )

    def _note(self, text: str, *, level: str = "warning") -> None:
        self.log.write("note", level=level, text=text)
