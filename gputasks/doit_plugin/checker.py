"""doit's `check_file_uptodate` by content: files and folders, whatever their times.

doit asks a checker for the state of a `file_dep` after the action, and would record an edit made
meanwhile as consumed (doit issue 119).  This one notes down each digest when doit looks at the
dependency *before* the action, and hands that one out afterwards, so that the edit makes the task
stale.  doit does not look when it already knows that the task must run (a missing target): whoever
is told of a task before its action calls `before` then.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from doit.exceptions import InvalidTask

import gputasks.doit_plugin.failures  # noqa: F401  makes our ConfigError one of doit's
from gputasks.errors import ConfigError, GputasksError, MachineError
from gputasks.fingerprint import Digests
from gputasks.layout import Layout

if TYPE_CHECKING:
    from collections.abc import Iterable


class InputError(InvalidTask, MachineError):  # type: ignore[misc]
    """An input that has no digest, as doit prints it: one message, no traceback."""


class ContentChecker:
    """What doit's FileChangedChecker promises; the recorded state is the digest, a string."""

    CheckerError = FileNotFoundError

    def __init__(self) -> None:
        self._before: dict[str, str] = {}

    def exists(self, file_path: str) -> bool:
        """Whether a target is there; its content is the business of receipts."""
        return os.path.exists(file_path)

    def before(self, file_deps: Iterable[str]) -> None:
        """Note down what a task is about to consume.  What is missing is told by doit itself.

        Raises:
            InputError: something cannot be read.

        """
        for path in file_deps:
            if os.path.exists(path):
                self.info(path)

    def info(self, file_path: str) -> str:
        """The digest now, which doit hands to `check_modified`.

        Raises:
            FileNotFoundError: doit says that the dependency does not exist.
            InputError: it cannot be read.

        """
        digest = _digest(file_path)
        # The first look counts until it is recorded: of two tasks that run side by side, the
        # first one may have read what the second one does not see any more.
        self._before.setdefault(file_path, digest)
        return digest

    def check_modified(self, file_path: str, file_stat: str, state: object) -> bool:  # noqa: ARG002  doit's signature
        """Whether the content is another one than recorded; `file_stat` is what `info` gave."""
        return file_stat != state

    def get_state(self, dep: str, current_state: object) -> str | None:
        """The digest to record after an action, None for the one already recorded.

        Raises:
            FileNotFoundError: doit fails the task and names the file.
            InputError: it cannot be read.

        """
        _digests().invalidate()  # an action has run since the last look
        digest = self._before.pop(dep, None) or _digest(dep)
        return None if digest == current_state else digest


def _digests() -> Digests:
    # Asked each time: doit changes into the folder of dodo.py after making its checker.
    return Digests.shared(Layout())


def _digest(path: str) -> str:
    try:
        return _digests().path(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise InputError(f"input `{path}` cannot be read: {error.strerror}") from error
    except ConfigError:
        raise
    except GputasksError as error:
        raise InputError(error.message, facts=error.facts, hint=error.hint) from error
