"""The keys that trainings and commands have in common."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from gputasks.checks import paths, values
from gputasks.checks.resources import checked_fields
from gputasks.settings import environment, outputs
from gputasks.specs import Resources

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gputasks.checks.faults import Faults

SHARED_KEYS = ("file_dep", "artifacts", "resources", "env", "python", "requirements", "cwd",
               "max_duration", "stop_grace", "retries", "retry_on", "retry_delay", "cache",
               "resume", "name", "doc")  # fmt: skip
RETRY_OUTCOMES = ("failed", "lost", "timed_out")
LATER = {
    "launcher": "other ways to start workers than `local`",
    "nodes": "training on several nodes",
    "image": "training inside containers",
}


def given_keys(keys: Mapping[str, Any]) -> dict[str, Any]:
    """The keys with a value: None is the same as not given."""
    return {k: v for k, v in keys.items() if v is not None}


def shared_fields(faults: Faults, keys: Mapping[str, Any], *, training: bool) -> dict[str, Any]:
    """The fields that trainings and commands share."""
    given = given_keys(keys)
    fields: dict[str, Any] = {}
    checkers: dict[str, tuple[str, Callable[[Any], Any]]] = {
        "file_dep": ("file_dep", lambda v: paths.input_paths(faults, v)),
        "artifacts": ("artifacts", lambda v: outputs.artifact_list(faults, v)),
        "resources": ("resources", lambda v: _resources(faults, v)),
        "env": ("env", lambda v: environment.checked_env(faults, v, training=training)),
        "python": ("python", lambda v: _python(faults, v)),
        "requirements": ("requirements", lambda v: _requirements(faults, v, given)),
        "cwd": ("cwd", lambda v: _cwd(faults, v)),
        "max_duration": ("max_duration_s", lambda v: values.duration(faults, "max_duration", v)),
        "stop_grace": (
            "stop_grace_s",
            lambda v: values.duration(faults, "stop_grace", v, off=False),
        ),
        "retries": ("retries", lambda v: values.whole(faults, "retries", v, least=0, most=1000)),
        "retry_on": ("retry_on", lambda v: _retry_on(faults, v)),
        "retry_delay": (
            "retry_delay_s",
            lambda v: values.duration(faults, "retry_delay", v, off=False),
        ),
        "cache": ("cache", lambda v: values.boolean(faults, "cache", v)),
        "resume": ("resume", lambda v: values.boolean(faults, "resume", v)),
        "name": ("name", lambda v: _name(faults, v)),
        "doc": ("doc", lambda v: _doc(faults, v)),
    }
    for key, value in given.items():
        if key in checkers:
            field, check = checkers[key]
            fields[field] = check(value)
        elif key in LATER and not (key == "launcher" and value == "local"):
            faults.add(f"`{key}=` is not supported yet: {LATER[key]}", key)
    if fields.get("resources", 0) is None:
        del fields["resources"]
    return fields


def _resources(faults: Faults, value: Any) -> Resources | None:
    """`resources=`: the spec, or a table with its keys; None after a fault."""
    if isinstance(value, Resources):
        return value
    if not isinstance(value, dict):
        faults.must("resources", "`gt.Resources(…)` or a table", value)
        return None
    deeper = faults.inside(f"`resources` of {faults.owner}", "resources")
    before = len(faults.found)
    fields = checked_fields(deeper, value)
    return Resources(**fields) if len(faults.found) == before else None


def _retry_on(faults: Faults, value: Any) -> tuple[str, ...]:
    """Outcomes, exit codes, signals and names of exceptions, as texts."""
    found: list[str] = []
    for item in value if isinstance(value, (list, tuple)) else [value]:
        code = type(item) is int and 0 < item < 256
        word = isinstance(item, str) and (
            item in RETRY_OUTCOMES or re.fullmatch(r"SIG[A-Z0-9]+|[\w.]*\b[A-Z]\w+", item, re.ASCII)
        )
        if code or word:
            found.append(str(item))
        else:
            faults.must(
                "retry_on",
                "a list of `failed`, `lost`, `timed_out`, exit codes, signals (`SIGKILL`) and names"
                " of exceptions (`OutOfMemoryError`)",
                item,
            )
    return tuple(found)


def _python(faults: Faults, value: Any) -> str:
    """A path, or a name to look up on PATH; not normalised, as `./python` is a path."""
    text = paths.as_text(value)
    if isinstance(text, str) and text.startswith("~"):
        return paths.clean_path(faults, "python", text)
    what = "a path, a program or a version"
    if isinstance(text, (int, float)) and not isinstance(text, bool):
        # 3.10 is the number 3.1.
        faults.must("python", what, text, hint=f'a version is a text: `"{text}"`')
        return ""
    return values.text(faults, "python", text, what=what) or ""


def _requirements(faults: Faults, value: Any, given: Mapping[str, Any]) -> tuple[str, ...]:
    from gputasks.checks.requirements import requirement_lines

    deps = given.get("file_dep")
    made = [os.path.normpath(str(p)) for p in deps] if isinstance(deps, (list, tuple)) else []
    return requirement_lines(faults, value, tuple(made))


def _cwd(faults: Faults, value: Any) -> str:
    path = paths.clean_path(faults, "cwd", value)
    if path and os.path.lexists(path) and not os.path.isdir(path):
        faults.add(f"`cwd` of {faults.owner} is no folder: `{path}`", "cwd")
        return ""
    return "" if path == "." else path


def _name(faults: Faults, value: Any) -> str:
    """A subtask's name: doit splits the command line at `=` and `:` and reads `*` as a pattern."""
    fine = isinstance(value, str) and value and value[0] != "-" and not values.has_control(value)
    if fine and not any(c in value for c in " =:*"):
        return str(value)
    faults.must("name", "one word without `=`, `:` and `*`", value)
    return ""


def _doc(faults: Faults, value: Any) -> str:
    if isinstance(value, str):
        return str(value)
    faults.must("doc", "a text", value)
    return ""
