"""`gt.train`, `gt.command`, `gt.build`: fresh doit dicts, checked, with nothing hidden in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gputasks.errors import ConfigError
from gputasks.specs import Run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    from gputasks.specs import Artifact, Image, ParamsStyle, Resources

TaskDict = dict[str, Any]


def train(
    script: str | PathLike[str] | Run,
    *extra: Any,
    name: str | None = None,
    params: Mapping[str, Any] | None = None,
    params_style: ParamsStyle | None = None,
    args: Sequence[str] | None = None,
    file_dep: Sequence[str | PathLike[str] | Artifact] | None = None,
    artifacts: Sequence[str | Artifact] | None = None,
    nproc_per_node: int | None = None,
    resources: Resources | None = None,
    env: Mapping[str, str] | None = None,
    python: str | PathLike[str] | None = None,
    requirements: str | PathLike[str] | Sequence[str] | None = None,
    cwd: str | PathLike[str] | None = None,
    max_duration: str | float | None = None,
    stop_grace: str | float | None = None,
    stall_timeout: str | float | None = None,
    retries: int | None = None,
    retry_on: Sequence[str | int] | None = None,
    retry_delay: str | float | None = None,
    cache: bool | None = None,
    resume: bool | None = None,
    resume_params: Sequence[str] | None = None,
    smoke: Mapping[str, Any] | None = None,
    doc: str | None = None,
    launcher: str | None = None,
    nodes: Any = None,
    image: Any = None,
    **unknown: Any,
) -> TaskDict:
    """A distributed training as a doit task.

    Args:
        script: a Python script, relative to the folder of dodo.py, or a run of `gt.load`.
        extra: refused; everything else is by keyword.
        name: makes it a subtask `TASK:name`.
        params: values for the script: `{"lr": 1e-3}` becomes `--lr 0.001`; typed as JSON in the
            file that `$GPUTASKS_PARAMS` names.
        params_style: `"flags"` (argparse, LightningCLI), `"key=value"` (Hydra) or `"none"`.
        args: further words of the command line, verbatim; `"{resume}"` becomes the checkpoint to
            resume from, and goes, with the flag before it, when there is none.
        file_dep: inputs, files or folders; compared by content.
        artifacts: outputs, files or folders: the targets of the task.
        nproc_per_node: workers when no GPU is leased; with GPUs there is one worker per GPU.
        resources: what to lease; by default every free GPU of this machine, or none.
        env: variables of the workers; `${secrets.NAME}` is replaced at the last moment.
        python: interpreter of the workers, a path, a program or a version (`"3.11"`); by default
            the one that runs doit.
        requirements: a file, or a list of lines of one: the task then has a virtual environment
            of its own, made once.
        cwd: working folder, relative to the folder of dodo.py.
        max_duration: `"2h"`; the run is then stopped and counts as timed out.
        stop_grace: time between SIGTERM and SIGKILL, to write a last checkpoint; 30 s.
        stall_timeout: a worker silent for so long ends the run with all stacks; 10 min, or `"off"`.
        retries: further attempts after a failure, each from the newest checkpoint.
        retry_on: what is worth a further attempt: `"failed"`, `"lost"`, `"timed_out"`, exit codes,
            signals (`"SIGKILL"`), names of exceptions (`"OutOfMemoryError"`); by default whatever
            is no interruption and no timeout.
        retry_delay: wait before the first further attempt; doubles each time, up to 5 min; 1 s.
        cache: keep outputs for later.
        resume: continue an interrupted run with the same inputs from its newest checkpoint.
        resume_params: names of params, e.g. `("max_epochs",)`: when only these have changed since
            the last finished run, continue from its newest checkpoint.
        smoke: params for `doit TASK --smoke`, over the others; such a run counts apart.
        doc: shown by `doit list`.
        launcher: only `"local"` so far.
        nodes: not there yet.
        image: not there yet.
        unknown: refused, with the nearest valid name.

    Raises:
        ConfigError: every fault of the call at once; to doit it is an InvalidDodoFile.

    """
    keys = {**_given(locals(), "script"), **unknown}
    if isinstance(script, Run):
        return _task(_again(script, "gt.train", "train", extra, keys))
    from gputasks.settings.runs import train_run

    return _task(train_run(script, extra, keys))


def command(
    argv: Sequence[str | PathLike[str]] | str | Run,
    *extra: Any,
    name: str | None = None,
    shell: bool | None = None,
    file_dep: Sequence[str | PathLike[str] | Artifact] | None = None,
    artifacts: Sequence[str | Artifact] | None = None,
    resources: Resources | None = None,
    env: Mapping[str, str] | None = None,
    python: str | PathLike[str] | None = None,
    requirements: str | PathLike[str] | Sequence[str] | None = None,
    cwd: str | PathLike[str] | None = None,
    max_duration: str | float | None = None,
    stop_grace: str | float | None = None,
    retries: int | None = None,
    retry_on: Sequence[str | int] | None = None,
    retry_delay: str | float | None = None,
    cache: bool | None = None,
    resume: bool | None = None,
    doc: str | None = None,
    image: Any = None,
    **unknown: Any,
) -> TaskDict:
    """Any program as a doit task: exit code 0 is success, anything else is failure.

    A command with neither `file_dep` nor `artifacts` always runs.  It takes no Python values and
    returns none.

    Args:
        argv: the program and its arguments, passed verbatim; no shell is involved.
        extra: refused; everything else is by keyword.
        name: makes it a subtask `TASK:name`.
        shell: `argv` is one text for bash, run with `pipefail`.
        file_dep: inputs, files or folders; compared by content.
        artifacts: outputs, files or folders: the targets of the task.
        resources: what to lease; nothing by default.
        env: variables of the program; `${secrets.NAME}` is replaced at the last moment.
        python: interpreter whose packages count as inputs when the program is a Python script; a
            path, a program or a version.
        requirements: a file, or a list of lines of one: the task then has a virtual environment
            of its own, made once, whose programs are found first.
        cwd: working folder, relative to the folder of dodo.py.
        max_duration: `"2h"`; it is then stopped and counts as timed out.
        stop_grace: time between SIGTERM and SIGKILL; 30 s.
        retries: further attempts after a failure.
        retry_on: what is worth one, see `train`.
        retry_delay: wait before the first further attempt; doubles each time, up to 5 min; 1 s.
        cache: keep outputs for later.
        resume: leave the outputs of an interrupted run with the same inputs where they are.
        doc: shown by `doit list`.
        image: not there yet.
        unknown: refused, with the nearest valid name.

    Raises:
        ConfigError: every fault of the call at once; to doit it is an InvalidDodoFile.

    """
    keys = {**_given(locals(), "argv"), **unknown}
    if isinstance(argv, Run):
        return _task(_again(argv, "gt.command", "command", extra, keys))
    from gputasks.settings.runs import command_run

    return _task(command_run(argv, extra, keys))


def build(
    image: Image,
    *extra: Any,
    name: str | None = None,
    file_dep: Sequence[str | PathLike[str] | Artifact] | None = None,
    doc: str | None = None,
    **unknown: Any,
) -> TaskDict:
    """An image as a doit task: built when what it is made of has changed, or it is gone.

    Args:
        image: a `gt.Image`, or an image of `gt.load`.
        extra: refused.
        name: makes it a subtask `TASK:name`.
        file_dep: files of the context that other tasks make; what the image is made of is found
            without being named.
        doc: shown by `doit list`.
        unknown: refused, with the nearest valid name.

    Raises:
        ConfigError: every fault of the call at once; to doit it is an InvalidDodoFile.

    """
    from gputasks.checks.faults import Faults
    from gputasks.checks.paths import input_paths
    from gputasks.doit_plugin.images import IMAGE, BuildAction, ImageUpToDate, clean_image
    from gputasks.doit_plugin.verdicts import META
    from gputasks.imagespec import Image
    from gputasks.layout import Layout

    faults = Faults("`gt.build`")
    if not isinstance(image, Image):
        faults.add(f"`gt.build` takes a `gt.Image`, got `{image!r}`"[:200])
    if extra:
        faults.add("`gt.build` takes one positional argument, the image")
    faults.unknown(unknown, ("name", "file_dep", "doc"))
    inputs = input_paths(faults, file_dep) if file_dep is not None else ()
    faults.finish()
    layout = Layout()
    parent = image.parent_image
    parents = [] if isinstance(parent, str) else [layout.image_digest(parent.name)]
    meta: dict[str, Any] = {}
    task: TaskDict = {
        "actions": [BuildAction(image, layout)],
        "file_dep": [*inputs, *parents],
        "targets": [layout.image_digest(image.name)],
        "uptodate": [ImageUpToDate(image, layout, meta)],
        "clean": [(clean_image, [image, layout])],
        "io": {"capture": False},
        "verbosity": 0,
        "meta": {META: meta, IMAGE: image.name},
        "doc": doc or f"Build the image {image.name}.",
    }
    if name:
        task["name"] = name
    return task


def _given(values: dict[str, Any], first: str) -> dict[str, Any]:
    """The keywords that were given: None is the same as not given."""
    return {
        k: v for k, v in values.items() if v is not None and k not in (first, "extra", "unknown")
    }


def _again(run: Run, call: str, kind: str, extra: tuple[Any, ...], keys: dict[str, Any]) -> Run:
    """A run from TOML, which is complete: only a name and a doc may be added."""
    other = sorted(set(keys) - {"name", "doc"})
    if run.kind != kind:
        right = "gt.train" if run.kind == "train" else "gt.command"
        raise ConfigError(f"this run is a {run.kind}", hint=f"use `{right}` for it")
    if extra or other:
        raise ConfigError(
            f"`{call}` of a run from a file takes no `{other[0]}`" if other
            else f"`{call}` takes one positional argument",
            hint="change the file, or a copy: `run.with_options(…)`",
        )  # fmt: skip
    return run.with_options(**keys)


def _task(run: Run) -> TaskDict:
    """The doit task of a run: actions, file_dep, targets, uptodate, clean, meta."""
    from gputasks.doit_plugin.action import RunAction, clean_artifacts
    from gputasks.doit_plugin.options import task_options
    from gputasks.doit_plugin.verdicts import META, UpToDate
    from gputasks.layout import Layout

    layout = Layout()
    targets = [a.path for a in run.artifacts]
    meta: dict[str, Any] = {}
    verdict = UpToDate(run, layout, targets, meta)
    task: TaskDict = {
        "actions": [RunAction(run, layout)],
        "file_dep": _edges(run),
        "targets": targets,
        "uptodate": [verdict],
        "clean": [(clean_artifacts, [run, layout, verdict.names])],
        "io": {"capture": False},
        "verbosity": 0,
        "meta": {META: meta},
    }
    if run.kind == "train":
        task["params"] = task_options(run)
    if run.name:
        task["name"] = run.name
    if run.doc:
        task["doc"] = run.doc
    return task


def _edges(run: Run) -> list[str]:
    """Inputs as doit sees them: the declared ones and the script.  Imports are ours to find."""
    return list(dict.fromkeys([*run.file_dep, *([run.script] if run.script else [])]))
