"""`[tool.doit]` of pyproject.toml: doit ignores what it does not know there, so we look.

Only a file that names the table is parsed, with the one parser that reads TOML here.
"""

from __future__ import annotations

import os

from doit.cmd_base import DodoTaskLoader, DoitCmdBase
from doit.cmd_run import Run

from gputasks.checks.faults import Faults

PATH = "pyproject.toml"
BESIDE = ("default_tasks", "minversion", "action_string_formatting", "cleandep", "loader")
TABLES = ("plugins", "commands", "tasks")


def check_tool_doit() -> None:
    """Refuse unknown options of `[tool.doit]`, each with its line and the nearest name.

    doit reads the file of the folder it is started in, which need not be this one.

    Raises:
        ConfigError: all of them at once, or the file is no TOML.

    """
    try:
        with open(PATH, "rb") as file:
            if b"tool.doit" not in file.read():
                return
    except OSError:
        return
    from gputasks.settings.toml import read_toml

    document = read_toml(os.path.normpath(PATH))
    table = document.data.get("tool", {}).get("doit", {})
    options = (*DoitCmdBase.base_options, *DodoTaskLoader.cmd_options, *Run.cmd_options)
    known = {*BESIDE, *TABLES, *(option["name"] for option in options)}
    faults = Faults("`[tool.doit]`", document.place, ("tool", "doit"))
    faults.unknown(table, known)
    faults.finish()
