"""Virtual environments of tasks that declare `requirements=` or a version of Python.

Each is made once, under a name that tells what is in it, and shared by every task and checkout
that wants the same.  Looking at one starts no process, and loads nothing that makes one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gputasks.environments.environment import Environment, home, look
    from gputasks.environments.make import Held, ensure
    from gputasks.environments.removal import remove, unused

__all__ = ["Environment", "Held", "ensure", "home", "look", "remove", "unused"]

_HOME = {"Held": "make", "ensure": "make", "remove": "removal", "unused": "removal"}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module `{__name__}` has no `{name}`")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_HOME.get(name, 'environment')}"), name)
