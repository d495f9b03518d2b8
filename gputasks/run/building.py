"""The conductor of an image: lock -> parents -> builder -> check -> tags -> facts -> receipt."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gputasks.errors import GputasksError, MachineError, RunFailedError, render
from gputasks.events import EventLog
from gputasks.images import builders, facts, names
from gputasks.images import inputs as taking
from gputasks.images import receipt as receipts
from gputasks.images.context import LARGE
from gputasks.images.engine import Engine
from gputasks.leases import lock_task
from gputasks.proc import Interrupted, interrupts
from gputasks.run import messages
from gputasks.run.job import interrupted
from gputasks.run.record import RunRecord
from gputasks.units import format_bytes

if TYPE_CHECKING:
    from gputasks.fingerprint import Digests
    from gputasks.images.inputs import Plan
    from gputasks.images.progress import Failure, Step
    from gputasks.images.receipt import ImageReceipt
    from gputasks.layout import Layout
    from gputasks.leases import TaskLock
    from gputasks.specs import Image

ATTEMPTS = 3
"""Builds in a row that files may change under."""


@dataclass
class BuildJob:
    """What to build, and why."""

    task: str
    image: Image
    layout: Layout
    digests: Digests
    reasons: list[str]
    run_id: str
    forced: bool = False


def build_image(job: BuildJob) -> ImageReceipt:
    """Make an image and its receipt.

    Raises:
        RunFailedError: a step failed, or what was built is not what was wanted.
        MachineError: no engine, no builder that could do it, no space.
        ConfigError: a Dockerfile or requirements that cannot be used.
        Interrupted: a signal ended it.

    """
    try:
        job.layout.prepare()
    except OSError as error:
        raise messages.machine_error(error) from error
    log = EventLog(os.path.join(job.layout.run(job.task, job.run_id), "events.jsonl"))
    os.makedirs(os.path.dirname(log.path), exist_ok=True)
    lock = lock_task(
        job.layout.lock(job.task),
        task=job.task,
        run=job.run_id,
        waiting=lambda text: log.write("waiting", text=text),
        cancelled=interrupted,
    )
    if lock is None:
        raise Interrupted(interrupts.requested or 2)
    try:
        return _Course(job, log, lock).go()
    except OSError as error:
        raise messages.machine_error(error) from error
    finally:
        lock.release()


class _Course:
    """The steps of one build, in their order."""

    def __init__(self, job: BuildJob, log: EventLog, lock: TaskLock) -> None:
        self.job = job
        self.image = job.image
        self.log = log
        self.lock = lock
        self.record = RunRecord(job.layout, job.task, job.run_id)
        self.folder = os.path.join(self.record.folder, "attempt-0")
        self.output = os.path.join(self.folder, "output.log")

    def go(self) -> ImageReceipt:
        """Take them; whatever way it ends, the record says it."""
        os.makedirs(self.folder, exist_ok=True)
        self.record.open_build(self.image, self.job.reasons)
        self.log.write("started", task=self.job.task, run=self.job.run_id, log=self.output,
                       reasons=self.job.reasons)  # fmt: skip
        outcome = "failed"
        failure: GputasksError | Interrupted | None = None
        try:
            return self._steps()
        except Interrupted as error:
            outcome, failure = "interrupted", error
            raise
        except GputasksError as error:
            failure = error
            raise
        except OSError as error:
            failure = messages.machine_error(error)
            raise failure from error
        finally:
            if failure is not None:
                self._close(outcome, failure)

    def _steps(self) -> ImageReceipt:
        engine = Engine()
        engine.ping()
        plan = self._with_bases(engine)
        self.record.data["digest"] = plan.digest
        builder = "skipped"
        present = engine.inspect_image(plan.ref)
        mine = ((present or {}).get("Config") or {}).get("Labels") or {}
        there = present is not None and mine.get(names.LABEL) == plan.digest
        if there and not self.job.forced:
            self._note("its image is there already: nothing to build", level="info")
            builder = "found"
        elif self.image.skip_build:
            repository, _, tag = plan.ref.rpartition(":")
            engine.tag(plan.bases[0], repository, tag)
        else:
            builder, plan = self._build(engine, plan)
        inspected = engine.inspect_image(plan.ref)
        if inspected is None:
            raise RunFailedError(f"the {builder} builder left no image `{plan.ref}`")
        return self._finish(engine, plan, inspected, builder)

    # -- steps ---------------------------------------------------------------------------------

    def _plan(self, engine: Engine) -> Plan:
        last = receipts.read(self.job.layout, self.image.name)
        return taking.take(
            self.image,
            self.job.layout,
            self.job.digests,
            engine=engine,
            last=dict(last.inputs) if last is not None else None,
        )

    def _with_bases(self, engine: Engine) -> Plan:
        """The plan, with all parent images here."""
        plan = self._plan(engine)
        missing = [b for b in plan.bases if engine.inspect_image(b) is None]
        for ref in missing:
            from gputasks.images.classic import pull

            self.log.write("phase", phase="pull", text=f"pulls {ref}")
            why = pull(engine, ref, self.image.platform, self._write)
            if why:
                raise MachineError(
                    f"parent image `{ref}` of image `{self.image.name}` is not here and cannot be"
                    " pulled",
                    facts=[" ".join(why.split())[:300]],
                    hint=f"`docker pull {ref}` tries it by hand",
                )
        return self._plan(engine) if missing else plan

    def _build(self, engine: Engine, plan: Plan) -> tuple[str, Plan]:
        builder = builders.choose(engine)
        builders.refuse_needs(builder, plan)
        sources = self._secrets()
        self._warn_of_size(plan)
        for _ in range(ATTEMPTS):
            order = builders.Order(plan, self.folder, sources, builders.labels(plan))
            self.log.write("phase", phase="build")
            failure = builder.build(order, self._tell, self._write)
            if interrupts.requested is not None:
                raise Interrupted(interrupts.requested)
            if failure is not None:
                raise self._failed(failure)
            self.job.digests.invalidate()
            again = self._plan(engine)
            if again.digest == plan.digest:
                return builder.name, plan
            # What was sent may be neither the old nor the new: nobody may find it by its tag.
            with contextlib.suppress(MachineError):
                engine.delete(f"/images/{plan.ref}?noprune=1")
            self._note("files changed while the image was built; building it again")
            plan = again
        raise RunFailedError(
            f"`{self.job.task}` failed: files of image `{self.image.name}` changed during each of"
            f" {ATTEMPTS} builds",
            hint="leave out what changes all the time in `.dockerignore`",
        )

    def _secrets(self) -> dict[str, str]:
        """Sources of secrets, absolute, each there.

        Raises:
            MachineError: a file or a variable is missing.

        """
        found = {}
        for name, source in self.image.secrets.items():
            kind, _, rest = source.partition(":")
            if kind == "env":
                if rest not in os.environ:
                    raise MachineError(
                        f"secret `{name}` of image `{self.image.name}` needs the variable"
                        f" `{rest}`, which is not set"
                    )
                found[name] = source
                continue
            path = os.path.abspath(os.path.expanduser(source))
            if not os.path.isfile(path):
                raise MachineError(
                    f"secret `{name}` of image `{self.image.name}` needs `{source}`, which is"
                    " missing"
                )
            found[name] = path
        return found

    def _warn_of_size(self, plan: Plan) -> None:
        if plan.context is None:
            return
        total = sum(e.size for e in plan.context.entries())
        if total > LARGE:
            largest = ", ".join(f"{n} {format_bytes(s)}" for n, s in plan.context.largest())
            self._note(f"the build context has {format_bytes(total)}: {largest};"
                       " leave out what the image does not need in `.dockerignore`")  # fmt: skip

    def _tell(self, step: Step) -> None:
        cached = " (cached)" if step.cached else ""
        text = " ".join(step.text.split())[:160]
        self.log.write("progress", step=step.number, total=step.total)
        self.log.write("phase", phase="build", text=f"{step.number}/{step.total} {text}{cached}")
        self.lock.heartbeat()

    def _write(self, text: str) -> None:
        with open(self.output, "ab") as file:
            file.write(text.encode("utf-8", "backslashreplace"))

    def _failed(self, failure: Failure) -> RunFailedError:
        facts = [failure.step] if failure.step else []
        if failure.exit_code is not None:
            facts.append(f"exited with code {failure.exit_code}")
        elif failure.message:
            facts.append(failure.message)
        if failure.lines:
            facts += ["last lines:", *(f"  {line}" for line in failure.lines)]
        if os.path.exists(self.output):
            facts.append(f"log: {os.path.relpath(self.output, self.job.layout.root)}")
        return RunFailedError(
            f"`{self.job.task}` failed: image `{self.image.name}` could not be built",
            facts=facts,
            hint=f"`gputasks logs {self.job.task}` shows the whole log",
        )

    def _verify(self, found: dict[str, Any]) -> None:
        wanted = self.image.verify
        if wanted in ("auto", "none", ""):
            return
        torch, cuda = found.get("torch"), str(found.get("cuda") or "")
        has = f"torch {torch} with CUDA {cuda}" if cuda else f"torch {torch} without CUDA"
        if not torch:
            has = "no torch"
        if not cuda or (wanted != "cuda" and (cuda + ".").find(wanted + ".") != 0):
            raise RunFailedError(
                f"`{self.job.task}` failed: image `{self.image.name}` has {has}",
                facts=[f'it was asked for: `verify="{wanted}"`'],
                hint="name an index with CUDA wheels in `index_urls`",
            )

    def _finish(
        self, engine: Engine, plan: Plan, inspected: dict[str, Any], builder: str
    ) -> ImageReceipt:
        found: dict[str, Any] = {}
        if self.image.verify != "none":
            self.log.write("phase", phase="verify")
            found = facts.read_facts(engine, plan.ref, self.image.platform)
            self._verify(found)
        engine.tag(plan.ref, names.repository(self.image.name), names.FRIENDLY)
        pushed = self._push(engine, plan) if self.image.push else ""
        receipt = receipts.ImageReceipt(
            image=self.image.name,
            task=self.job.task,
            run=self.job.run_id,
            digest=plan.digest,
            ref=plan.ref,
            inputs=plan.inputs,
            content=self._content(plan, inspected, found),
            layers=tuple((inspected.get("RootFS") or {}).get("Layers") or ()),
            size=int(inspected.get("Size") or 0),
            builder=builder,
            engine=engine.host,
            facts=found,
            pushed=pushed,
            finished=round(time.time(), 3),
            duration_s=self.record.duration_s,
        )
        listed = [{"name": self.image.name, "path": plan.ref, "bytes": receipt.size}]
        with interrupts.deferred():
            self.record.close("succeeded", builder=builder, image=plan.ref, facts=found)
            receipts.write(self.job.layout, receipt)
            self.job.digests.save()
            if text := facts.summary(found):
                self._note(text, level="info")
            self.log.write("finished", outcome="succeeded", exit_code=0, artifacts=listed,
                           duration_s=self.record.duration_s)  # fmt: skip
        return receipt

    def _content(self, plan: Plan, inspected: dict[str, Any], found: dict[str, Any]) -> str:
        """What the image is, for those that depend on it.

        Layers built twice from the same are never equal: times of files are in them.  An image that
        was pruned and built again from the same inputs, with the same packages inside, counts as
        what it was: no training of two days runs again because a disk was tidied.
        """
        last = receipts.read(self.job.layout, self.image.name)
        same = last is not None and last.digest == plan.digest and dict(last.facts) == found
        if last is not None and same and found.get("packages"):
            return last.content
        return taking.identity(inspected)

    def _push(self, engine: Engine, plan: Plan) -> str:
        from gputasks.images.classic import push

        target = self.image.push
        if not names.has_tag(target):
            target = f"{target}:{plan.digest[:16]}"
        repository, _, tag = target.rpartition(":")
        self.log.write("phase", phase="push", text=f"pushes {target}")
        engine.tag(plan.ref, repository, tag)
        digest, why = push(engine, target, self._write)
        if why:
            raise RunFailedError(
                f"`{self.job.task}` failed: `{target}` cannot be pushed",
                facts=[" ".join(why.split())[:300]],
                hint=f"`docker login` for the registry, then `doit {self.job.task}`",
            )
        return f"{repository}@{digest}" if digest else target

    # -- the way out ---------------------------------------------------------------------------

    def _close(self, outcome: str, failure: GputasksError | Interrupted) -> None:
        text = render(failure, prefix="") if isinstance(failure, GputasksError) else "interrupted"
        with contextlib.suppress(OSError):
            self.record.close(outcome, message=text)
        code = failure.code if isinstance(failure, Interrupted) else failure.exit_code
        self.log.write("finished", outcome=outcome, exit_code=code, message=text,
                       duration_s=self.record.duration_s)  # fmt: skip

    def _note(self, text: str, *, level: str = "warning") -> None:
        self.log.write("note", level=level, text=text)
