"""gputasks: make for GPU training, a plain-Python task library on doit.

The names below are all that a dodo.py uses.  They are looked up on first use: importing this module
loads nothing, and nothing heavy is loaded while everything is up to date.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    "command",
    "doit_config",
    "load",
    "progress",
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
    "command": "gputasks.tasks",
    "doit_config": "gputasks.doit_plugin.config",
    "load": "gputasks.settings.project",
    "progress": "gputasks.worker",
    "train": "gputasks.tasks",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used (PEP 562)."""
    home = _HOME.get(name)
    if home is None:
        from gputasks.errors import nearest

        close = nearest(name, __all__)
        hint = f"; did you mean `{close}`?" if close else ""
        raise AttributeError(f"module `gputasks` has no `{name}`{hint}")
    import importlib

    if "doit" in sys.modules:
        # A fault in dodo.py is then one message of doit's, whichever name is used first.
        importlib.import_module("gputasks.doit_plugin.failures")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
