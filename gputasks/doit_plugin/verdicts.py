"""The one `uptodate` object of our tasks: asks the receipts, and hands on what it found.

doit calls it in the main process.  Workers of `doit -n` get a copy of the task without it, so what
was found travels in `task.meta` (facts: research on doit 0.37, task.pickle_safe_dict).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from doit.dependency import UptodateCalculator

from gputasks.doit_plugin import graph
from gputasks.doit_plugin.options import with_options
from gputasks.errors import ConfigError, GputasksError, render
from gputasks.fingerprint import Digests
from gputasks.history import new_run_id
from gputasks.receipts import evaluate
from gputasks.receipts import receipt as receipts

if TYPE_CHECKING:
    from doit.task import Task

    from gputasks.layout import Layout
    from gputasks.receipts import Verdict
    from gputasks.specs import Run

META = "gputasks"
ALWAYS = {"-a", "--always-execute"}
"""doit's option to run what is up to date.  A task whose last run failed is not, but is meant too;
doit tells nobody else."""
RECORD = "gputasks_run"
"""Key of the run id in doit's own record of a task."""


def reasons_of(task: Task) -> list[str]:
    """Why a task runs, also when our verdict was "up to date": `doit -a`, or doit's own reasons."""
    found: list[str] = task.meta[META].get("reasons") or []
    if found:
        return found
    changed = sorted(task.dep_changed or ())
    return [f"{', '.join(changed[:3])} changed since doit recorded it"] if changed else ["forced"]


def _check_project_file() -> None:
    """A faulty gputasks.toml is told before anything starts; a no-op need not read it."""
    from gputasks.settings import project

    project.find()


class UpToDate(UptodateCalculator):  # type: ignore[misc]
    """Compares the receipt of a task with the world each time doit asks."""

    def __init__(self, run: Run, layout: Layout, targets: list[str], meta: dict[str, Any]) -> None:
        super().__init__()
        self.run = run
        self.layout = layout
        self.names: list[str] = []
        self.asked = run
        self.verdict: Verdict | None = None
        self._targets = targets
        self._meta = meta

    def configure_task(self, task: Task) -> None:
        """Doit tells the task's name, before it copies the list of targets."""
        self.names[:] = [task.name]
        self._targets.append(self.layout.digests(task.name))

    @property
    def task_name(self) -> str:
        """The task's name, once doit has told it."""
        return self.names[0] if self.names else ""

    def look(self, recorded: str | None, options: dict[str, Any] | None = None) -> Verdict:
        """What the receipt says, for callers that have doit's record at hand.

        Args:
            recorded: the run id in doit's record.
            options: what the command line said to this task, by param.

        Raises:
            GputasksError: the script is missing or does not parse, an input cannot be read.

        """
        digests = Digests.shared(self.layout)
        found = receipts.read(self.layout, self.task_name)
        self.asked = with_options(self.run, self.task_name, options, found)
        self.verdict = evaluate(
            self.asked, self.task_name, self.layout, digests, found=found, recorded=recorded
        )
        return self.verdict

    def __call__(self, task: Task, values: dict[str, Any]) -> bool:
        """True when up to date.

        Raises:
            ConfigError: the graph has an edge that doit cannot see, or the script does not parse.

        """
        if self.tasks_dict is not None:
            graph.check(self.tasks_dict)
        meta = self._meta
        meta.clear()
        try:
            verdict = self.look(values.get(RECORD), task.options)
        except ConfigError:
            raise
        except GputasksError as error:
            meta["refused"] = render(error)
            return False
        if not verdict.up_to_date:
            _check_project_file()
        kinds = {c["kind"] for c in verdict.causes}
        if not kinds or "forgotten" in kinds or ALWAYS & set(sys.argv):
            meta["forced"] = True
        elif kinds == {"record"}:
            meta["unrecorded"] = True
        meta.update(
            run=(run_id := new_run_id(self.layout, task.name)),
            run_dir=self.layout.run(task.name, run_id),
            kind=self.run.kind,
            reasons=verdict.reasons,
            inputs=verdict.inputs,
            asked={k: getattr(self.asked, k) for k in ("params", "given", "smoking")},
        )
        refused = graph.unfinished_input(task, self.tasks_dict or {}, self.layout)
        if refused is not None and not verdict.up_to_date:
            meta["refused"] = render(refused)
        return verdict.up_to_date

    def __str__(self) -> str:
        """What `doit info` prints after asking: the reasons."""
        if self.verdict is None:
            return "receipt"
        return "; ".join(self.verdict.reasons) or "up to date"
