"""What a run does with secrets: gives them to its workers, and keeps them out of all else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gputasks.agent.redact import Redactor, clean_folder
from gputasks.proc import Hide

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Secrets:
    """The secrets of one task.

    Args:
        env: the task's variables, references replaced.
        environ: the caller's variables that the task may have.
        forms: what must not be seen anywhere; empty for a task without secrets.
        notes: what the user should know.

    """

    def __init__(
        self,
        env: Mapping[str, str],
        environ: Mapping[str, str],
        forms: frozenset[bytes] = frozenset(),
        notes: Sequence[str] = (),
    ) -> None:
        self.env = dict(env)
        self.environ = dict(environ)
        self.forms = forms
        self.notes = tuple(notes)
        self._redactor = Redactor(forms)

    def __repr__(self) -> str:
        return f"Secrets({len(self.forms)} forms)"

    def hide(self, value: Any) -> Any:
        """A value for JSON, or a text, with `***` for all secrets in it."""
        return self._redactor.value(value) if self.forms else value

    def hide_in(self, folder: str, rank_logs: tuple[str, ...], events: str) -> Hide | None:
        """What the guard has to do; None: nothing, workers write their logs themselves."""
        if not self.forms:
            return None
        return Hide(tuple(sorted(self.forms)), rank_logs, folder, events)

    def clean(self, folder: str, logs: Sequence[str]) -> None:
        """Clean what the scripts of an attempt wrote themselves; its logs are clean."""
        if self.forms:
            clean_folder(folder, self._redactor, without=logs)
