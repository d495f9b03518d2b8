"""`gputasks why TASK`: every cause, old and new, or that there is none."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from gputasks.cli.graph import known, load
from gputasks.doit_plugin.images import ImageUpToDate
from gputasks.doit_plugin.verdicts import RECORD, UpToDate
from gputasks.receipts.compare import Cause, cause

if TYPE_CHECKING:
    from doit.dependency import Dependency
    from doit.task import Task


def why(names: list[str], *, as_json: bool, dodo: str) -> int:
    """Print the causes of each task, upstream ones included.

    Raises:
        ConfigError: dodo.py is faulty, or there is no such task.

    """
    tasks, database, _ = load(dodo)
    for name in names:
        known(tasks, name, dodo)
    answers = [_answer(tasks[n], tasks, database) for n in names]
    if as_json:
        print(json.dumps(answers if len(answers) > 1 else answers[0], indent=1))
        return 0
    for answer in answers:
        if not answer["causes"]:
            print(f"{answer['task']}: up to date")
            continue
        print(f"{answer['task']}: would run")
        for each in answer["causes"]:
            print(f"  {each['text']}")
    return 0


def _answer(task: Task, tasks: dict[str, Task], database: Dependency) -> dict[str, Any]:
    causes = [*_upstream(task, tasks, database, set()), *own_causes(task, tasks, database)]
    return {"task": task.name, "up_to_date": not causes, "causes": causes}


def own_causes(task: Task, tasks: dict[str, Task], database: Dependency) -> list[Cause]:
    """Why this task would run, whatever becomes of those before it.

    Raises:
        GputasksError: an input or the script cannot be read.

    """
    ours = next((u for u, _, _ in task.uptodate if isinstance(u, (UpToDate, ImageUpToDate))), None)
    if ours is not None:
        recorded = database.get_values(task.name).get(RECORD)
        found = [*ours.look(recorded).causes]
        if found:
            return found
    if task.has_subtask or not task.actions:
        return []
    answer = database.get_status(task, tasks, get_log=True)
    if answer.status == "up-to-date":
        return []
    if answer.status == "error":
        return [cause("error", "", str(answer.error_reason))]
    return [
        cause(kind, str(what), f"{kind.replace('_', ' ')}: {what}")
        for kind, whats in answer.reasons.items()
        if whats
        for what in (whats if isinstance(whats, list) else [whats])
    ] or [cause("run", "", "doit would run it")]


def _upstream(
    task: Task, tasks: dict[str, Task], database: Dependency, seen: set[str]
) -> list[Cause]:
    """Tasks before this one that would run: whether this one follows depends on what they leave."""
    causes = []
    for name in task.task_dep:
        if name in seen:
            continue
        seen.add(name)
        causes += _upstream(tasks[name], tasks, database, seen)
        own = own_causes(tasks[name], tasks, database)
        if own:
            text = f"`{name}` runs first: {own[0]['text']}"
            causes.append(cause("upstream", name, text, None, [c["text"] for c in own]))
    return causes
