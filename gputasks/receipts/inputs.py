"""The fingerprint: everything that decides what a run will produce, as plain JSON data.

Taken before the action, compared with the fingerprint of the last finished run.  What only decides
how a run goes (limits, grace, retries, CPUs, memory) is no input.  Secrets are inputs by their
reference: the text `${secrets.NAME}` in `env`, never the value.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING, Any

from gputasks.errors import ConfigError, MachineError
from gputasks.fingerprint import interpreter, local_imports

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gputasks.fingerprint import Digests
    from gputasks.specs import Run

Inputs = dict[str, Any]

VERSION = 2


def take_inputs(run: Run, digests: Digests) -> Inputs:
    """The fingerprint of a run now.

    Returns:
        `{"version", "params", "args", "argv", "env", "workers", "python", "requirements",
        "packages", "files", "code", "missing"}`: `files` and `code` map paths to digests, `missing`
        lists declared inputs that are not there.  `packages` is None while the task's own
        environment is not there.

    Raises:
        ConfigError: the script is missing or does not parse.
        MachineError: an input cannot be read.

    """
    own = None
    if run.has_environment:
        from gputasks import environments

        own = environments.look(run, digests)
    used = interpreter(python_of(run), digests=digests) if own is None else own.interpreter()
    scripts = _scripts(run, used.source_dirs, digests)
    missing: list[str] = []
    inputs: Inputs = {
        "version": VERSION,
        "kind": run.kind,
        "params": _plain(run.params),
        "smoke": run.smoking,
        "params_style": run.params_style,
        "args": list(run.args),
        "argv": list(run.argv),
        "shell": run.shell,
        "env": dict(run.env),
        "cwd": run.cwd,
        "workers": {"nproc_per_node": run.nproc_per_node, "gpu_count": run.resources.gpu_count},
        "artifacts": {a.name: a.path for a in run.artifacts},
        "python": "",
        "requirements": {},
        "packages": {},
        "files": _digest_all(run.file_dep, digests, missing),
        "code": _digest_all(scripts, digests, missing),
        "missing": missing,
    }
    if own is not None:
        missing.extend(own.requirements.missing)
        inputs["requirements"] = own.requirements.as_input()
    if scripts or own is not None:
        inputs["python"] = f"{used.implementation} {used.version}"
        inputs["packages"] = dict(used.packages) if own is None or own.ready() else None
    return inputs


def resume_digest(inputs: Inputs, resume_params: Iterable[str]) -> str:
    """Equal for runs of which one can continue the other: all inputs but these params."""
    params = {k: v for k, v in inputs["params"].items() if k not in set(resume_params)}
    return inputs_digest({**inputs, "params": params})


def inputs_digest(inputs: Inputs) -> str:
    """One digest of a fingerprint: two runs with the same one would do the same.

    Requirements that leave no choice speak for the packages, so that it is the same before and
    after their environment was made.
    """
    if inputs["requirements"].get("pinned"):
        inputs = {**inputs, "packages": {}}
    text = json.dumps(inputs, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def changed_during(before: Inputs, run: Run, digests: Digests) -> list[str]:
    """Declared inputs and code that are not what they were when the run started.

    A file that is an input and lies inside an artifact cannot exist (refused at load time), so
    whatever differs was edited by somebody, or by the run itself.
    """
    digests.invalidate()
    try:
        after = take_inputs(run, digests)
    except (ConfigError, MachineError) as error:
        return [error.message]
    old = {**before["files"], **before["code"]}
    new = {**after["files"], **after["code"]}
    changed = sorted(p for p in {*old, *new} if old.get(p) != new.get(p))
    return changed + ["requirements"] * (before["requirements"] != after["requirements"])


def python_of(run: Run) -> str:
    """The interpreter whose packages count, as a path or a name; empty for the driver's."""
    if run.kind == "command" and not run.python:
        name = run.argv[0]
        return name if os.sep in name and os.path.basename(name).startswith("python") else ""
    return run.python


def _scripts(run: Run, sources: tuple[str, ...], digests: Digests) -> tuple[str, ...]:
    """The user's code that runs: the script and the local modules it imports.

    Modules are looked for beside the script, in the project, on the task's PYTHONPATH, and in
    editable installations, whose code changes while their version stays.
    """
    script = run.script if run.kind == "train" else _python_script(run)
    if not script:
        return ()
    paths = [p for p in run.env.get("PYTHONPATH", "").split(os.pathsep) if p]
    roots = [digests.layout.root, *paths, *sources]
    return (script, *local_imports(script, roots=roots, digests=digests))


def _python_script(run: Run) -> str:
    """The script of `python script.py …`: code is an input whether or not it is declared."""
    if run.shell or not os.path.basename(run.argv[0]).startswith("python"):
        return ""
    for word in run.argv[1:]:
        if word in ("-c", "-m"):
            return ""
        if not word.startswith("-"):
            path = os.path.normpath(os.path.join(run.cwd, word)) if run.cwd else word
            inside = not os.path.isabs(path) and not path.startswith("..")
            return path if inside and path.endswith(".py") and os.path.isfile(path) else ""
    return ""


def _digest_all(paths: Iterable[str], digests: Digests, missing: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in paths:
        try:
            found[path] = digests.path(path)
        except FileNotFoundError:
            missing.append(path)
        except OSError as error:
            raise MachineError(f"input `{path}` cannot be read: {error.strerror}") from error
    return found


def _plain(value: Any) -> Any:
    """The value as it comes back from JSON, so that tuples and lists compare equal."""
    return json.loads(json.dumps(value))
