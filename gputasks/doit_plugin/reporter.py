"""Our reporter with what must happen before doit starts anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from doit.globals import Globals

from gputasks import report
from gputasks.doit_plugin import graph
from gputasks.doit_plugin.backend import DurableDB
from gputasks.doit_plugin.checker import ContentChecker
from gputasks.doit_plugin.verdicts import META, reasons_of
from gputasks.fingerprint import Digests

if TYPE_CHECKING:
    from collections.abc import Mapping

    from doit.task import Task


class Reporter(report.Reporter):
    """Shows what happens; doit tells it of each step, which makes it the place for early checks."""

    def initialize(self, tasks: Mapping[str, Task], selected_tasks: list[str]) -> None:
        """All tasks are known, none has started.

        Raises:
            ConfigError: the graph has an edge that doit cannot see.

        """
        graph.check(tasks)
        super().initialize(tasks, selected_tasks)

    def get_status(self, task: Task) -> None:
        """A task is about to be looked at."""
        checker = getattr(Globals.dep_manager, "checker", None)
        if isinstance(checker, ContentChecker):
            # doit records inputs after the run; what they are before it must be known as well.
            checker.before(task.file_dep)
        super().get_status(task)

    def execute_task(self, task: Task) -> None:
        """A task is about to run.

        Raises:
            doit's DatabaseException: its success could not be recorded.

        """
        backend: Any = getattr(Globals.dep_manager, "backend", None)
        if isinstance(backend, DurableDB):
            backend.check_writable()
        if task.meta and task.meta.get(META):
            task.meta[META]["reasons"] = reasons_of(task)
        super().execute_task(task)

    def add_success(self, task: Task) -> None:
        """A task has ended well, and may have changed any file."""
        Digests.invalidate_shared()
        super().add_success(task)
