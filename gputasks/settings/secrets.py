"""The table `[secrets]`: where secrets come from besides the shell, never what they are."""

from __future__ import annotations

import os
from dataclasses import field
from typing import TYPE_CHECKING, Any

from gputasks.checks import values
from gputasks.checks.faults import Faults
from gputasks.frozen import Frozen, spec
from gputasks.settings.environment import is_name

if TYPE_CHECKING:
    from collections.abc import Mapping

KEYS = ("file", "commands")
_NAMES = "letters, digits and `_`, not starting with a digit"


@spec
class SecretsTable(Frozen):
    """Where secrets come from.

    Args:
        file: a TOML file of names and values, `~` allowed, else relative to the folder of dodo.py;
            empty: the default one, if it is there.
        commands: name -> the program that prints the value, and its arguments.
    """

    file: str = ""
    commands: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def read_table(folder: str) -> SecretsTable:
    """The table of the project's file, without a look at the other tables.

    A dodo.py need not call `gt.load`, so it is read when a task is about to start.

    Args:
        folder: of dodo.py.

    Raises:
        ConfigError: the file is no TOML, or every fault of the table at once, with its line.

    """
    from gputasks.settings.project import beside

    found = beside(os.path.relpath(folder))
    if found is None:
        return SecretsTable()
    document, prefix = found
    data: Any = document.data
    for key in prefix:
        data = data[key]
    faults = Faults("", document.place, prefix)
    table = checked_secrets(faults, data.get("secrets", {}))
    faults.finish()
    return table


def checked_secrets(outer: Faults, value: Any) -> SecretsTable:
    """The table, with the faults noted.  No value is shown: it may be a secret in a wrong place."""
    faults = outer.inside("`[secrets]`", "secrets")
    if not isinstance(value, dict):
        outer.add("`secrets` must be a table, `[secrets]`", "secrets")
        return SecretsTable()
    unknown = [key for key in value if key not in KEYS]
    faults.unknown(
        unknown, KEYS, {key: hint for key in unknown if (hint := _misplaced(value, key))}
    )
    file = value.get("file", "")
    if "file" in value:
        file = values.text(faults, "file", file, what="a path") or ""
    commands = value.get("commands", {})
    if not isinstance(commands, dict):
        faults.add("`commands` of `[secrets]` must be a table, `[secrets.commands]`", "commands")
        commands = {}
    deeper = faults.inside("`[secrets.commands]`", "commands")
    return SecretsTable(file, {name: _argv(deeper, name, argv) for name, argv in commands.items()})


def _misplaced(table: Mapping[str, Any], key: str) -> str:
    """Advice for a secret, or its command, that stands one table too high."""
    from gputasks.errors import nearest

    if not is_name(key) or nearest(key, KEYS):
        return ""
    if isinstance(table[key], list):
        return "commands stand in `[secrets.commands]`"
    return "values stand in a file of their own, which `file` names, never in the project's"


def _argv(faults: Faults, name: str, argv: Any) -> tuple[str, ...]:
    if not is_name(name):
        faults.add(f"`{name}` of {faults.owner} is no name of a secret", name, hint=_NAMES)
    if isinstance(argv, str):
        # No shell is involved; `echo s3cr3t` would be one, so it is not shown.
        what = 'a list of a program and its arguments, `["pass", "show", "…"]`, not one text'
        faults.add(f"`{name}` of {faults.owner} must be {what}", name)
        return ()
    words = values.words(faults, name, argv)
    if isinstance(argv, (list, tuple)) and not (argv and argv[0]):
        faults.add(f"`{name}` of {faults.owner} names no program", name)
    return words


def refuse_elsewhere(faults: Faults, path: str) -> None:
    """Refuse the table in a file that nobody reads when a task starts."""
    from gputasks.settings.project import DEFAULT, PYPROJECT

    if os.path.abspath(path) not in map(os.path.abspath, (DEFAULT, PYPROJECT)):
        faults.add(
            f"`[secrets]` does not count in `{path}`",
            "secrets",
            hint=f"it belongs to `{DEFAULT}` or `{PYPROJECT}` beside dodo.py",
        )
