"""Which project a view is about."""

from __future__ import annotations

import os

from gputasks.errors import ConfigError
from gputasks.layout import STATE_DIR, Layout


def project() -> Layout:
    """The nearest folder upwards that has a state folder.

    Raises:
        ConfigError: there is none: nothing has ever run here.

    """
    folder = os.getcwd()
    while not os.path.isdir(os.path.join(folder, STATE_DIR)):
        parent = os.path.dirname(folder)
        if parent == folder:
            raise ConfigError(
                f"no `{STATE_DIR}` here or above: nothing has run in this project",
                hint="`doit` runs the tasks of dodo.py",
            )
        folder = parent
    return Layout(os.path.relpath(folder))
