"""`DOIT_CONFIG`: our reporter, checker and backend for doit."""

from __future__ import annotations

from typing import Any

from gputasks.doit_plugin.checker import ContentChecker
from gputasks.doit_plugin.pyproject import check_tool_doit
from gputasks.doit_plugin.reporter import Reporter
from gputasks.errors import ConfigError, did_you_mean, raise_all
from gputasks.layout import Layout

KEYS = (
    "action_string_formatting",
    "cleandep",
    "continue",
    "default_tasks",
    "failure_verbosity",
    "minversion",
    "num_process",
    "par_type",
    "verbosity",
)
"""What a user may set besides; the rest is ours or belongs on the command line."""

OURS = ("reporter", "backend", "check_file_uptodate", "dep_file", "codec_cls")


def doit_config(*extra: Any, **options: Any) -> dict[str, Any]:
    """The value of `DOIT_CONFIG` in a dodo.py.

    Args:
        extra: refused; there are no positional arguments.
        options: options of doit by their names there, e.g. `default_tasks=["train"]`,
            `verbosity=2`, `num_process=4`.

    Raises:
        ConfigError: unknown options, with the nearest name; doit itself would ignore them.

    """
    faults = []
    if extra:
        faults.append(ConfigError("`gt.doit_config` takes no positional arguments"))
    for name in options:
        if name in OURS:
            faults.append(ConfigError(f"option `{name}` of `gt.doit_config` is set by gputasks"))
        elif name not in KEYS:
            hint = did_you_mean(name, KEYS)
            faults.append(ConfigError(f"unknown option `{name}` of `gt.doit_config`", hint=hint))
    tasks = options.get("default_tasks")
    if tasks is not None and (
        not isinstance(tasks, (list, tuple)) or not all(isinstance(t, str) for t in tasks)
    ):
        faults.append(ConfigError("option `default_tasks` must be a list of task names"))
    raise_all(faults)
    check_tool_doit()
    return {
        **options,
        "reporter": Reporter,
        "check_file_uptodate": ContentChecker,
        "backend": "gputasks",
        "dep_file": Layout().database,
    }
