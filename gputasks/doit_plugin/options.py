"""Params as options of the command line: `doit train --lr 0.01`.

Each param of a training is an option of its task.  A value is read as a TOML literal and must be of
the declared param's type; a text may be given bare, `none` is None, and a switch has an inverse
(`--no-amp`).  Options hold for one invocation: the next one without them goes back to dodo.py and
says so, unless `--keep` accepts what the last run had.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from gputasks.errors import ConfigError, raise_all

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gputasks.receipts import Receipt
    from gputasks.specs import Run

Options = dict[str, Any]

KEEP, SMOKE = "keep", "smoke"
RESERVED = (SMOKE, KEEP, "local", "no_wait", "verify")
"""Options that every training has, or will have: no param may be called so."""

_NAME = re.compile(r"[A-Za-z][\w.-]*", re.ASCII)


def task_options(run: Run) -> list[Options]:
    """doit's `params` of a training: an option for each param that a command line can name.

    Raises:
        ConfigError: a param has the name of an option that is ours.

    """
    raise_all(
        [
            ConfigError(f"param `{name}` of `gt.train` has the name of an option of gputasks")
            for name in RESERVED
            if name in run.params
        ]
    )
    found = [
        _switch(KEEP, "accept the params of the last run"),
        _switch(SMOKE, "a quick pass with the params of `smoke=`, which counts apart"),
    ]
    for name, value in _leaves(run.params):
        option: Options = {"name": name, "long": name, "default": None, "type": str}
        option["help"] = f"param, {value!r} in dodo.py"
        if isinstance(value, bool):
            option.update(type=bool, inverse=f"no-{name}")
        found.append(option)
    return found


def _switch(name: str, what: str) -> Options:
    return {"name": name, "long": name, "type": bool, "default": False, "help": what}


def _leaves(params: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Names and values; of a nested table with dots."""
    for key, value in params.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{name}.")
        elif _NAME.fullmatch(name):
            yield name, value


def with_options(run: Run, task: str, options: Options | None, last: Receipt | None) -> Run:
    """The run with what the command line said.

    Args:
        run: as dodo.py defines it.
        task: its name, for messages.
        options: doit's `task.options`, None when the task was not named on the command line.
        last: of the last finished run, for `--keep`.

    Raises:
        ConfigError: values of another type than the param's, all at once; `--smoke` of a task that
            does not say what that is.

    """
    if run.kind != "train" or not options:
        return run
    params, given, smoking = _copy(run.params), {}, bool(options.get(SMOKE))
    if options.get(KEEP) and last is not None:
        params, given = _copy(last.inputs["params"]), dict(last.options)
        smoking = smoking or last.inputs.get("smoke", False)
    if smoking and not run.smoke:
        raise ConfigError(
            f"`{task}` has no `smoke=`, so there is no `--smoke`",
            hint='`gt.train(…, smoke={"limit_train_batches": 0.05})`',
        )
    if smoking:
        params.update(_copy(run.smoke))
    faults = []
    for name, declared in _leaves(run.params):
        text = options.get(name)
        if text is None:
            continue
        try:
            given[name] = _value(text, declared)
            _put(params, name, given[name])
        except ValueError:
            kind = type(declared).__name__
            faults.append(
                ConfigError(
                    f"option `--{name}` of task `{task}` must be {_A[kind]}, as in dodo.py,"
                    f" not `{text}`"
                )
            )
    raise_all(faults)
    return run.with_options(params=params, given=given, smoking=smoking)


_A = {
    "int": "a whole number",
    "float": "a number",
    "list": "a list, e.g. `[1, 2]`",
    "dict": "a table, e.g. `{a = 1}`",
}


def _value(text: Any, declared: Any) -> Any:
    """A value of the declared one's type.

    Raises:
        ValueError: it is of another type.

    """
    if isinstance(text, bool):
        return text
    if text == "none":
        return None
    literal = _literal(text)
    if declared is None:
        return text if literal is _NO_LITERAL else literal
    if isinstance(declared, str):
        return literal if isinstance(literal, str) else text
    if isinstance(declared, float) and type(literal) is int:
        return float(literal)
    if type(literal) is not type(declared):
        raise ValueError(text)
    return literal


_NO_LITERAL = object()


def _literal(text: str) -> Any:
    """What TOML reads, or a mark that it reads nothing; it has no times of day here."""
    import tomli

    try:
        value = tomli.loads(f"x = {text}")["x"]
    except (tomli.TOMLDecodeError, KeyError):
        return _NO_LITERAL
    return value if isinstance(value, (str, bool, int, float, list, dict)) else _NO_LITERAL


def _copy(params: Mapping[str, Any]) -> Options:
    return {k: _copy(v) if isinstance(v, dict) else v for k, v in params.items()}


def _put(params: Options, name: str, value: Any) -> None:
    *tables, last = name.split(".") if name not in params else [name]
    for table in tables:
        params = params.setdefault(table, {})
    params[last] = value
