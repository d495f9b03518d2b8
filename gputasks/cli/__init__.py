"""The `gputasks` command: views on what doit tasks did and would do.

They are not doit commands: a doit command named `status` would break every dodo.py with a task of
that name, in every project of the environment.
"""

from gputasks.cli.main import main

__all__ = ["main"]
