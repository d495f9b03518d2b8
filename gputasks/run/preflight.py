"""Faults that can be told before anything is leased or moved."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from gputasks import environments
from gputasks.errors import ConfigError, MachineError
from gputasks.fingerprint import interpreter
from gputasks.launch.local import BARE_PYTHON

if TYPE_CHECKING:
    from gputasks.fingerprint import Digests
    from gputasks.receipts.inputs import Inputs
    from gputasks.specs import Run


def check_inputs(inputs: Inputs) -> None:
    """Every declared input is there.

    Raises:
        MachineError: naming those that are missing.

    """
    if inputs["missing"]:
        names = ", ".join(f"`{p}`" for p in inputs["missing"])
        raise MachineError(f"input {names} is missing")


def check(run: Run, inputs: Inputs, root: str, digests: Digests) -> str:
    """The interpreter to use, when nothing speaks against a start.

    Of an environment that is yet to be made nothing can be said: it may hold what is missing.

    Raises:
        MachineError: an input is missing, the interpreter has no torch, a program or the working
            folder is missing.
        ConfigError: the command is a folder or is not executable.

    """
    check_inputs(inputs)
    cwd = os.path.join(root, run.cwd) if run.cwd else root
    if not os.path.isdir(cwd):
        raise MachineError(f"the working folder `{run.cwd}` is missing")
    own = environments.look(run, digests) if run.has_environment else None
    if own is not None and not own.ready():
        return own.python
    used = interpreter(run.python, digests=digests) if own is None else own.interpreter()
    if run.kind == "train":
        if "torch" not in used.packages:
            raise MachineError(
                f"`{used.executable}` has no torch, which starts the workers",
                hint="name it in `requirements=`"
                if own is not None
                else f"`{used.executable} -m pip install torch`, or name another by `python=`",
            )
        return used.executable
    program = "bash" if run.shell else run.argv[0]
    if program in BARE_PYTHON:
        return used.executable
    # A program with a slash is meant relative to the task's folder, any other is looked up.
    if os.sep in program:
        path: str | None = os.path.join(cwd, program)
    else:
        inside = None if own is None else shutil.which(program, path=own.bin)
        path = inside or shutil.which(program)
    if path is None or not os.path.exists(path):
        raise MachineError(f"program `{program}` is not there", facts=[f"looked in: {cwd}, PATH"])
    if os.path.isdir(path) or not os.access(path, os.X_OK):
        raise ConfigError(f"`{program}` cannot be executed", hint=f"`chmod +x {program}`")
    return used.executable
