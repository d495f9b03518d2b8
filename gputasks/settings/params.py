"""Params: plain values that a command line and JSON can both carry, as a copy of our own."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from gputasks.checks.faults import shown
from gputasks.checks.values import unsendable
from gputasks.settings.environment import refuse_references

if TYPE_CHECKING:
    from gputasks.checks.faults import Faults

_DEEPEST = 50
_WIDEST_INT = 10**4000
"""Python refuses to write out more digits than 4300."""


def checked_params(faults: Faults, value: Any, key: str = "params") -> dict[str, Any]:
    """A deep copy of the params; later changes of the user's own objects do not reach it.

    Values are None, bool, int, float (also inf and nan), str, and lists and dicts of these.  Tuples
    become lists, paths become text, subclasses (IntEnum, numpy.float64) become the plain type.
    Everything else is a fault: numpy and torch scalars have `.item()`, which says what is meant.
    """
    if not hasattr(value, "items"):
        faults.must(key, "a table of names and values", value)
        return {}
    copied = _copy(faults, value, (key,))
    return copied if isinstance(copied, dict) else {}


def _copy(faults: Faults, value: Any, path: tuple[str, ...]) -> Any:
    kind = type(value)
    if value is None or kind is bool or kind is float:
        return value
    if kind is str or isinstance(value, str):
        return _text(faults, str.__str__(value), path)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, int):
        if -_WIDEST_INT < value < _WIDEST_INT:
            return int(value)
        faults.add(f"`{_label(path)}` of {faults.owner} has too many digits", *path)
        return None
    if len(path) > _DEEPEST:
        faults.add(
            f"`{_label(path[:4])}` of {faults.owner} is nested too deeply, or holds itself", *path
        )
        return None
    if isinstance(value, (list, tuple)):
        return [_copy(faults, v, (*path, str(n))) for n, v in enumerate(value)]
    if hasattr(value, "items") and hasattr(value, "keys"):
        return {
            str(k): _copy(faults, v, (*path, str(k)))
            for k, v in value.items()
            if _is_key(faults, k, path)
        }
    if isinstance(value, os.PathLike):
        return _copy(faults, os.fspath(value), path)
    faults.add(
        f"`{_label(path)}` of {faults.owner} is a {kind.__module__}.{kind.__qualname__},"
        " which params cannot hold",
        *path,
        hint=_plain_form(value),
    )
    return None


def _text(faults: Faults, value: str, path: tuple[str, ...]) -> str:
    if why := unsendable(value):
        faults.add(f"`{_label(path)}` of {faults.owner} {why}", *path)
    elif value == "{resume}":
        faults.add(
            f"`{_label(path)}` of {faults.owner}: `{{resume}}` is replaced in `args` only",
            *path,
            hint=f'`args=["--{path[1]}", "{{resume}}"]`',
        )
    elif "${secrets." in value:
        refuse_references(faults, (value,), *path)
    return value


def _is_key(faults: Faults, key: Any, path: tuple[str, ...]) -> bool:
    """A key becomes a flag, verbatim: `--KEY value` or `KEY=value`."""
    fine = (
        isinstance(key, str)
        and key
        and key[0] != "-"
        and "=" not in key
        and not any(c.isspace() for c in key)
        and not unsendable(key)
    )
    if not fine:
        faults.add(
            f"{shown(key)} in `{_label(path)}` of {faults.owner} is no name of a param",
            *path,
            hint="a text without `=` and spaces that does not start with `-`",
        )
    return bool(fine)


def _label(path: tuple[str, ...]) -> str:
    return ".".join(path)


def _plain_form(value: Any) -> str:
    if getattr(value, "ndim", 0):
        return "`.tolist()` gives a list of plain numbers"
    if hasattr(value, "item"):
        return "`.item()` gives the plain number"
    if isinstance(value, (set, frozenset)):
        return "`sorted(…)` gives a list, in the same order each time"
    if hasattr(value, "isoformat"):
        return f'write it as text: `"{value.isoformat()}"`'
    if hasattr(value, "value"):
        return "`.value` gives the plain value of an enum"
    return "None, booleans, numbers, texts, lists and tables of them"
