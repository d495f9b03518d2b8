"""gputasks: make for GPU training, a plain-Python task library on doit.

The names below are all that a dodo.py uses, and the script of a training may.  They are looked up
on first use: importing this module loads nothing, and nothing heavy is loaded while everything is
up to date.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType

    from gputasks.advice import cleanup_memory, suggest_num_workers
    from gputasks.doit_plugin.config import doit_config
    from gputasks.errors import ConfigError, GputasksError, MachineError, RunFailedError
    from gputasks.imagespec import Image
    from gputasks.settings.project import Project, load
    from gputasks.specs import Artifact, Resources, Run
    from gputasks.tasks import build, command, train
    from gputasks.version import __version__
    from gputasks.worker import progress

__all__ = [
    "Artifact",
    "ConfigError",
    "GputasksError",
    "Image",
    "MachineError",
    "Project",
    "Resources",
    "Run",
    "RunFailedError",
    "__version__",
    "build",
    "cleanup_memory",
    "command",
    "doit_config",
    "load",
    "progress",
    "suggest_num_workers",
    "train",
]

_HOME = {
    "Artifact": "gputasks.specs",
    "ConfigError": "gputasks.errors",
    "GputasksError": "gputasks.errors",
    "Image": "gputasks.imagespec",
    "MachineError": "gputasks.errors",
    "Project": "gputasks.settings.project",
    "Resources": "gputasks.specs",
    "Run": "gputasks.specs",
    "RunFailedError": "gputasks.errors",
    "__version__": "gputasks.version",
    "build": "gputasks.tasks",
    "cleanup_memory": "gputasks.advice",
    "command": "gputasks.tasks",
    "doit_config": "gputasks.doit_plugin.config",
    "load": "gputasks.settings.project",
    "progress": "gputasks.worker",
    "suggest_num_workers": "gputasks.advice",
    "train": "gputasks.tasks",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used (PEP 562)."""
    import importlib

    if "doit" in sys.modules:
        # A fault in dodo.py is then one message of doit's, whichever name is used first.
        importlib.import_module("gputasks.doit_plugin.failures")
    home = _HOME.get(name)
    if home is None:
        frame = sys._getframe(1)  # noqa: SLF001  where it stands in dodo.py
        if name == "create_doit_tasks" or frame.f_code.co_filename.startswith("<frozen importlib"):
            # Asked by doit of all that a dodo.py holds, and by Python before it imports a room of
            # ours: nobody misspelt anything, and a search for the nearest name costs a millisecond.
            raise AttributeError(name)
        raise _unknown(name, frame)
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def _unknown(name: str, frame: FrameType) -> Exception:
    from gputasks.errors import UnknownNameError, nearest

    close = nearest(name, __all__)
    return UnknownNameError(
        f"module `gputasks` has no `{name}`",
        place=f"{frame.f_code.co_filename}:{frame.f_lineno}",
        hint=f"did you mean `{close}`?" if close else "",
    )


def __dir__() -> list[str]:
    return sorted(__all__)
