"""The tasks of a dodo.py and doit's records of them, without running anything."""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING

from doit.cmd_base import DodoTaskLoader
from doit.control import TaskControl
from doit.dependency import Dependency
from doit.exceptions import InvalidCommand, InvalidDodoFile, InvalidTask

from gputasks.doit_plugin.backend import DurableDB
from gputasks.doit_plugin.checker import ContentChecker
from gputasks.errors import ConfigError, GputasksError, did_you_mean
from gputasks.layout import Layout

if TYPE_CHECKING:
    from doit.task import Task


def load(dodo: str) -> tuple[dict[str, Task], Dependency, list[str] | None]:
    """Tasks by name, in the order of the file; the records; the default tasks, None for all.

    Raises:
        ConfigError: dodo.py is faulty.

    """

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
    database = Dependency(
        DurableDB,
        config.get("dep_file", Layout().database),
        checker_cls=config.get("check_file_uptodate", ContentChecker),
    )
    return control.tasks, database, config.get("default_tasks")


def known(tasks: dict[str, Task], name: str, dodo: str) -> Task:
    """A task by name.

    Raises:
        ConfigError: there is none.

    """
    if name not in tasks:
        raise ConfigError(f"no task `{name}` in {dodo}", hint=did_you_mean(name, tasks))
    return tasks[name]
