"""Our errors in doit's clothes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from doit.exceptions import InvalidDodoFile, TaskError, TaskFailed

from gputasks.errors import ConfigError, ManyErrors, RunFailedError, UnknownNameError, render

if TYPE_CHECKING:
    from doit.exceptions import BaseFail

    from gputasks.errors import GputasksError


class DodoError(ConfigError, InvalidDodoFile):  # type: ignore[misc]
    """A fault of dodo.py, which doit prints as one message with exit code 3, no traceback."""


class DodoErrors(ManyErrors, InvalidDodoFile):  # type: ignore[misc]
    """Several of them."""


class DodoNameError(UnknownNameError, InvalidDodoFile):  # type: ignore[misc]
    """A misspelt name of ours."""


ConfigError.in_doit = DodoError
UnknownNameError.in_doit = DodoNameError
ManyErrors.in_doit = DodoErrors


def base_fail(error: GputasksError) -> BaseFail:
    """What an action returns: doit exits with 1 for `TaskFailed` and with 2 for `TaskError`."""
    kind = TaskFailed if isinstance(error, RunFailedError) else TaskError
    return kind(render(error))
