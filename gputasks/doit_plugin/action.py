"""The action of our tasks: hands a job to the conductor and translates how it ended."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from doit.action import BaseAction
from doit.exceptions import TaskError

from gputasks.doit_plugin.failures import base_fail
from gputasks.doit_plugin.verdicts import META, RECORD, reasons_of
from gputasks.errors import GputasksError
from gputasks.fingerprint import Digests

if TYPE_CHECKING:
    from doit.exceptions import BaseFail
    from doit.task import Task

    from gputasks.layout import Layout
    from gputasks.specs import Run


class RunAction(BaseAction):  # type: ignore[misc]
    """Runs one `Run`.  Picklable, and free of doit's output capture: logs are files."""

    def __init__(self, run: Run, layout: Layout) -> None:
        self.run = run
        self.layout = layout
        self.task: Task | None = None
        self.out: str | None = None
        self.err: str | None = None
        self.result: Any = None
        self.values: dict[str, Any] = {}

    def execute(self, _out: Any = None, _err: Any = None) -> BaseFail | None:
        """Make the artifacts; None when all went well.

        Raises:
            Interrupted: a signal ended it; doit then ends with its code.

        """
        from gputasks.proc import interrupts
        from gputasks.run import Job, conduct

        assert self.task is not None  # noqa: S101  doit sets it before the first action
        found = self.task.meta[META]
        if "refused" in found:
            return TaskError(found["refused"])
        interrupts.install()
        digests = Digests.shared(self.layout)
        job = Job(
            task=self.task.name,
            run=self.run.with_options(**found["asked"]),
            layout=self.layout,
            digests=digests,
            inputs=found["inputs"],
            reasons=reasons_of(self.task),
            run_id=found["run"],
            forced=bool(found.get("forced")),
            unrecorded=bool(found.get("unrecorded")),
        )
        try:
            done = conduct(job)
        except GputasksError as error:
            return base_fail(error)
        finally:
            digests.invalidate()
        self.values = {RECORD: done.run_id}
        self.result = {k: v["digest"] for k, v in done.outputs.items()}
        return None

    def __str__(self) -> str:
        """For `doit list --verbose` and error messages."""
        what = self.run.script if self.run.kind == "train" else " ".join(self.run.argv)
        return f"{self.run.kind} {what}"


def clean_artifacts(run: Run, layout: Layout, task_name: list[str], dryrun: bool) -> None:
    """Remove a task's artifacts, its receipt and its digests, telling each."""
    from gputasks.artifacts import aside

    name = task_name[0]
    for path in [*(a.path for a in run.artifacts), layout.receipt(name), layout.digests(name)]:
        if os.path.lexists(path):
            kind = "folder" if os.path.isdir(path) else "file"
            print(f"{name} - removing {kind} '{path}'")
            if not dryrun:
                aside.remove(path)
