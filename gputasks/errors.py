"""Named failures: what went wrong, where, the facts, what to do next, and the exit code.

Errors are data.  They are raised anywhere and turned into text in one place, `render`,
so the voice stays the same in the terminal, in the JSON stream and in doit's own messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import ClassVar

EXIT_FAILED = 1
"""A training, command or artifact failed, timed out or was lost."""
EXIT_MACHINE = 2
"""A dependency or the machine is at fault."""
EXIT_CONFIG = 3
"""Faulty dodo.py or TOML; nothing was started."""


class GputasksError(Exception):
    """Base of every failure that gputasks tells its user.

    Args:
        message: one lower-case phrase that suffices alone, names in backticks, no full stop.
        place: `file:line` or a path, empty when there is none.
        facts: further lines, shown indented.
        hint: one real command or key.

    """

    exit_code = EXIT_MACHINE

    def __init__(
        self, message: str, *, place: str = "", facts: Sequence[str] = (), hint: str = ""
    ) -> None:
        super().__init__(message)
        self.message = message
        self.place = place
        self.facts = tuple(facts)
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by the keyword form: doit's process workers send errors through a queue."""
        return (_rebuild, (type(self), self.message, self.place, self.facts, self.hint))

    def __str__(self) -> str:
        return render(self, prefix="")


def _rebuild(
    cls: type[GputasksError], message: str, place: str, facts: tuple[str, ...], hint: str
) -> GputasksError:
    return cls(message, place=place, facts=facts, hint=hint)


class ConfigError(GputasksError, ValueError):
    """The user's dodo.py, TOML or command line is at fault; nothing was started (exit 3).

    Inside doit it is doit's InvalidDodoFile as well, which doit prints as one message without a
    traceback: `doit_plugin.failures` says of which class it then is.
    """

    exit_code = EXIT_CONFIG
    in_doit: ClassVar[type[ConfigError] | None] = None

    def __new__(cls, *_args: object, **_keys: object) -> ConfigError:  # noqa: D102, PYI034  as above
        kind: type[ConfigError] = cls.__dict__.get("in_doit") or cls
        return super().__new__(kind)


class MachineError(GputasksError):
    """The machine or a dependency is at fault: no space, no permission, no GPU (exit 2)."""

    exit_code = EXIT_MACHINE


class RunFailedError(GputasksError):
    """A training, command or artifact failed, timed out or was lost (exit 1)."""

    exit_code = EXIT_FAILED


class ManyErrors(ConfigError):  # noqa: N818  a plural reads better than ManyErrorsError
    """All faults of one file or call at once."""

    in_doit: ClassVar[type[ConfigError] | None] = None

    def __init__(self, faults: Iterable[ConfigError]) -> None:
        self.faults = tuple(faults)
        count = len(self.faults)
        super().__init__(f"{count} fault{'s' if count != 1 else ''}")

    def __reduce__(self) -> tuple[object, ...]:
        return (ManyErrors, (self.faults,))

    def __str__(self) -> str:
        return render(self, prefix="")


class UnknownNameError(ConfigError, AttributeError):
    """`gt.trian`: a name that gputasks has not; an AttributeError, as `hasattr` wants it."""

    in_doit: ClassVar[type[ConfigError] | None] = None


def raise_all(faults: Sequence[ConfigError]) -> None:
    """Raise nothing, the one fault, or all of them together.

    Raises:
        ConfigError: when there is at least one fault.

    """
    if len(faults) == 1:
        raise faults[0]
    if faults:
        raise ManyErrors(faults)


def render(error: GputasksError, *, prefix: str = "error: ") -> str:
    """The plain text of an error: message, place, facts, an empty line, one hint."""
    if isinstance(error, ManyErrors):
        first, *rest = error.faults
        return "\n\n".join([render(first, prefix=prefix), *(render(f) for f in rest)])
    lines = [f"{prefix}{error.message}"]
    if error.place:
        lines.append(f"  --> {error.place}")
    lines.extend(f"  {line}" for fact in error.facts for line in fact.splitlines())
    if error.hint:
        lines += ["", f"hint: {error.hint}"]
    return "\n".join(lines)


def nearest(word: str, valid: Iterable[str]) -> str:
    """The valid name that was probably meant, or an empty string."""
    import difflib  # only when something is wrong: it costs a millisecond

    words = sorted(set(valid))
    lowered = {w.lower(): w for w in words}
    close = difflib.get_close_matches(word.lower(), list(lowered), n=1, cutoff=0.6)
    if close:
        return lowered[close[0]]
    # `gpu` for `gpu_count`, `batch` for `batch_size`: a part of a name is no close match by ratio.
    parts = [w for w in words if word and (word.lower() in w.lower() or w.lower() in word.lower())]
    return parts[0] if len(parts) == 1 else ""


def did_you_mean(word: str, valid: Iterable[str]) -> str:
    """A hint for a misspelt name: the nearest valid one, or all of them."""
    names = sorted(set(valid))
    close = nearest(word, names)
    if close:
        return f"did you mean `{close}`?"
    return "valid: " + ", ".join(f"`{n}`" for n in names)
