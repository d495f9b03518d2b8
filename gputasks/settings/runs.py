"""The arguments of `gt.train` and `gt.command`, or a table `[runs.NAME]`, turned into a `Run`.

Nothing is opened or parsed here, and no more than the script is looked up on disk: this runs for
every task of every `doit` call, also when all is up to date.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gputasks.checks import paths, values
from gputasks.checks.faults import Faults, shown
from gputasks.errors import did_you_mean
from gputasks.settings import environment, flags, outputs
from gputasks.settings.params import checked_params
from gputasks.settings.shared import LATER, SHARED_KEYS, given_keys, shared_fields
from gputasks.specs import Resources, Run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gputasks.checks.faults import Place
    from gputasks.specs import ParamsStyle

TRAIN_ONLY = ("params", "params_style", "args", "nproc_per_node", "stall_timeout", "smoke",
              "resume_params")  # fmt: skip
TRAIN_KEYS = (*TRAIN_ONLY, *SHARED_KEYS, *LATER)
COMMAND_KEYS = ("shell", *SHARED_KEYS)

_HOOKS = ("on_start", "on_end", "on_success", "on_failure")
_FOREIGN = {
    "targets": "outputs are `artifacts=[…]`",
    "outputs": "outputs are `artifacts=[…]`",
    "inputs": "inputs are `file_dep=[…]`",
    "depends_on": "inputs are `file_dep=[…]`",
    "timeout": "the limit is `max_duration=`",
    "gpus": "GPUs are asked for by `resources=gt.Resources(gpu_count=…)`",
    "gpu_count": "GPUs are asked for by `resources=gt.Resources(gpu_count=…)`",
    "num_processes": "the number of workers is `nproc_per_node=`",
}
"""Words of other tools, and of doit, for which the nearest name would mislead."""


def train_run(
    script: Any, extra_args: Sequence[Any], keys: Mapping[str, Any], *, place: Place = ""
) -> Run:
    """A training.

    Args:
        script: text or path, relative to the folder of dodo.py; must be an existing file there.
        extra_args: further positional arguments, all refused.
        keys: of `TRAIN_KEYS`; None counts as not given.
        place: `file:line` for faults, or a function of the key's path.

    Raises:
        ConfigError: every fault of the call.

    """
    faults = Faults("`gt.train`", place)
    run = checked_train(faults, script, extra_args, keys)
    faults.finish()
    return run


def checked_train(
    faults: Faults, script: Any, extra_args: Sequence[Any], keys: Mapping[str, Any]
) -> Run:
    """The same with a collector of the caller's; the run counts only if it stays empty."""
    if extra_args:
        _refuse_positional(faults, "the script", len(extra_args))
    faults.unknown((k for k in keys if k not in TRAIN_KEYS), TRAIN_KEYS, _FOREIGN)
    fields = shared_fields(faults, keys, training=True)
    path = paths.script_path(faults, script)
    given = given_keys(keys)
    if "params" in given:
        fields["params"] = checked_params(faults, given["params"])
        _refuse_traps(faults, fields["params"])
    if "smoke" in given:
        fields["smoke"] = checked_params(faults, given["smoke"], key="smoke")
    if "resume_params" in given:
        fields["resume_params"] = _resume_params(
            faults, given["resume_params"], fields.get("params", {})
        )
    if "params_style" in given:
        styles = ("flags", "key=value", "none")
        fields["params_style"] = values.choice(
            faults, "params_style", given["params_style"], styles
        )
    if "args" in given:
        fields["args"] = values.words(faults, "args", given["args"])
        environment.refuse_references(faults, fields["args"], "args")
    if "nproc_per_node" in given:
        fields["nproc_per_node"] = values.whole(
            faults, "nproc_per_node", given["nproc_per_node"], least=1
        )
    if "stall_timeout" in given:
        fields["stall_timeout_s"] = values.duration(faults, "stall_timeout", given["stall_timeout"])
    resources = fields.get("resources") or Resources()
    if fields.get("runtime") == "inline":
        resources = fields["resources"] = _inline(faults, given, resources)
    if resources.gpu_count is None:
        # A training wants GPUs where there are some; `gpu_count=0` says that it does not.
        fields["resources"] = replace(resources, gpu_count="auto")
    style: ParamsStyle = fields.get("params_style") or "flags"
    for key, why in flags.inexpressible(fields.get("params", {}), style):
        faults.add(
            f"`params.{key}` of {faults.owner}: {why}",
            "params",
            *key.split("."),
            hint='`params_style="none"` passes params as JSON only',
        )
    run = Run(kind="train", script=path, **fields)
    _check_overlap(faults, run, path)
    return run


def _inline(faults: Faults, given: Mapping[str, Any], resources: Resources) -> Resources:
    """What a script in doit's own process cannot have; by default it leases no GPU."""
    for key in ("image", "python", "requirements", "stall_timeout", "retries"):
        if key in given:
            faults.add(f'`{key}` of {faults.owner} needs `runtime="isolated"`', key)
    many = given.get("nproc_per_node")
    if isinstance(many, int) and many > 1:
        faults.add('`runtime="inline"` is one process, `nproc_per_node` more', "nproc_per_node")
    count = resources.gpu_count
    counts = count if isinstance(count, tuple) else (count or 0,)
    if any(c == "auto" or c > 1 for c in counts):
        faults.add(
            f'`runtime="inline"` is one process, `gpu_count={count!r}` may be more',
            "resources",
            hint="`gpu_count=1`, or leave `runtime` out",
        )
    return replace(resources, gpu_count=0) if count is None else resources


def _resume_params(faults: Faults, value: Any, params: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of params: a change of only these continues from the last checkpoint."""
    names = values.words(faults, "resume_params", value)
    for name in names:
        if name not in params:
            faults.add(
                f"`resume_params` of {faults.owner} names `{name}`, which is none of its params",
                "resume_params",
                hint=did_you_mean(name, params) if params else "",
            )
    return names


def _refuse_traps(faults: Faults, params: Mapping[str, Any]) -> None:
    """Values that Lightning takes and that only fail, or mislead, once the training runs."""
    for key, value in params.items():
        name = key.rpartition(".")[2]
        if name == "accumulate_grad_batches" and value == 0:
            faults.add("`params.accumulate_grad_batches` must be 1 or more", "params", key)
        elif name == "strategy" and value == "dp":
            faults.add(
                "`params.strategy` is `dp`, which is one process for all GPUs",
                "params",
                key,
                hint="DDP has one worker per GPU: `ddp`",
            )
        elif isinstance(value, dict):
            _refuse_traps(faults, value)


def command_run(
    argv: Any, extra_args: Sequence[Any], keys: Mapping[str, Any], *, place: Place = ""
) -> Run:
    """A program.

    Args:
        argv: list of texts and paths, passed verbatim; with `shell=True` one text for bash.
        extra_args: further positional arguments, all refused.
        keys: of `COMMAND_KEYS`; None counts as not given.
        place: `file:line` for faults, or a function of the key's path.

    Raises:
        ConfigError: every fault of the call.

    """
    faults = Faults("`gt.command`", place)
    run = checked_command(faults, argv, extra_args, keys)
    faults.finish()
    return run


def checked_command(
    faults: Faults, argv: Any, extra_args: Sequence[Any], keys: Mapping[str, Any]
) -> Run:
    """The same with a collector of the caller's; the run counts only if it stays empty."""
    if extra_args:
        _refuse_positional(faults, "a list of the program and its arguments", len(extra_args))
    others = {k: f"`{k}` is for trainings; write it into the command" for k in TRAIN_ONLY}
    for key in (k for k in keys if k in _HOOKS):
        faults.add(
            f"hooks are not possible on a command: `{key}`",
            key,
            hint="a task with `file_dep` on these artifacts runs afterwards",
        )
    valid = (*COMMAND_KEYS, *_HOOKS, *LATER)
    names = [k for k in keys if k not in valid]
    faults.unknown(names, COMMAND_KEYS, {**_FOREIGN, **others})
    fields = shared_fields(faults, keys, training=False)
    shell = keys.get("shell") is True
    if keys.get("shell") is not None:
        values.boolean(faults, "shell", keys["shell"])
    words = _shell_text(faults, argv) if shell else _argv(faults, argv)
    environment.refuse_references(faults, words, "argv")
    if fields.get("runtime") == "inline":
        faults.add(f"{faults.owner} starts a program, which is a process of its own", "runtime")
    run = Run(kind="command", argv=words, shell=shell, stall_timeout_s=None, **fields)
    program = os.path.normpath(words[0]) if words and not shell and os.sep in words[0] else ""
    _check_overlap(faults, run, program)
    return run


def _refuse_positional(faults: Faults, what: str, count: int) -> None:
    faults.add(
        f"{faults.owner} takes one positional argument, {what}; got {count} more",
        hint="everything else is by keyword",
    )


def _check_overlap(faults: Faults, run: Run, program: str) -> None:
    what = "script" if run.kind == "train" else "program"
    used = [(what, program)] if program else []
    used += [("working folder", run.cwd)] if run.cwd else []
    used += [("input", p) for p in run.file_dep]
    outputs.check_overlap(faults, run.artifacts, used)


def _argv(faults: Faults, value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        import shlex

        try:
            split = ", ".join(f'"{w}"' for w in shlex.split(value))
        except ValueError:  # an unclosed quote
            split = ""
        facts = [f"as a list: [{split}]"] if split else []
        message = f"{faults.owner} takes a list, not the text {shown(value)}"
        faults.add(
            message, "command", facts=facts, hint="a list, or `shell=True` for bash to read it"
        )
        return ()
    words = values.words(faults, "command", value)
    if isinstance(value, (list, tuple)) and not value:
        faults.add(f"the command of {faults.owner} is empty", "command")
    elif words and not words[0]:
        faults.add(f"the program of {faults.owner} is an empty text", "command")
    return words


def _shell_text(faults: Faults, value: Any) -> tuple[str, ...]:
    if isinstance(value, (list, tuple)) and len(value) == 1:
        value = value[0]
    if not isinstance(value, str):
        faults.add(
            f"{faults.owner} with `shell=True` takes one text, not {shown(value)}", "command"
        )
    elif not value.strip():
        faults.add(f"the command of {faults.owner} is empty", "command")
    elif why := values.unsendable(value):
        faults.add(f"the command of {faults.owner} {why}", "command")
    else:
        return (value,)
    return ()
