"""`gputasks why TASK`: every cause, old and new, or that there is none."""

from __future__ import annotations

import json
import sys
import traceback
from typing import TYPE_CHECKING, Any

from doit.cmd_base import DodoTaskLoader
from doit.control import TaskControl
from doit.dependency import Dependency
from doit.exceptions import InvalidCommand, InvalidDodoFile, InvalidTask

from gputasks.doit_plugin.backend import DurableDB
from gputasks.doit_plugin.checker import ContentChecker
from gputasks.doit_plugin.verdicts import RECORD, UpToDate
from gputasks.errors import ConfigError, GputasksError, did_you_mean
from gputasks.layout import Layout
from gputasks.receipts.compare import Cause, cause

if TYPE_CHECKING:
    from doit.task import Task


def why(names: list[str], *, as_json: bool, dodo: str) -> int:
    """Print the causes of each task, upstream ones included.

    Raises:
        ConfigError: dodo.py is faulty, or there is no such task.

    """
    tasks, config = _load(dodo)
    for name in names:
        if name not in tasks:
            raise ConfigError(f"no task `{name}` in {dodo}", hint=did_you_mean(name, tasks))
    database = Dependency(
        DurableDB,
        config.get("dep_file", Layout().database),
        checker_cls=config.get("check_file_uptodate", ContentChecker),
    )
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


def _load(dodo: str) -> tuple[dict[str, Task], dict[str, Any]]:
    class Command:
        execute_tasks = False

    loader = DodoTaskLoader()
    try:
        loader.setup({"dodoFile": dodo, "cwdPath": None, "seek_file": True})
        config = loader.load_doit_config()
        control = TaskControl(loader.load_tasks(cmd=Command, pos_args=[]))
    except GputasksError:
        raise
    except (InvalidDodoFile, InvalidTask, InvalidCommand) as error:
        raise ConfigError(str(error)) from None
    except Exception as error:  # the user's own code raised
        frames = traceback.extract_tb(sys.exc_info()[2])
        place = f"{frames[-1].filename}:{frames[-1].lineno}"
        raise ConfigError(f"{dodo} cannot be loaded: {error!r}", place=place) from error
    return control.tasks, config


def _answer(task: Task, tasks: dict[str, Task], database: Dependency) -> dict[str, Any]:
    causes = [*_upstream(task, tasks, database, set()), *_own(task, tasks, database)]
    return {"task": task.name, "up_to_date": not causes, "causes": causes}


def _own(task: Task, tasks: dict[str, Task], database: Dependency) -> list[Cause]:
    ours = next((u for u, _, _ in task.uptodate if isinstance(u, UpToDate)), None)
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
        own = _own(tasks[name], tasks, database)
        if own:
            text = f"`{name}` runs first: {own[0]['text']}"
            causes.append(cause("upstream", name, text, None, [c["text"] for c in own]))
    return causes
