"""Single values: what may stand at a key, whichever key it is.

Each checker takes the collector, the key and the value, notes a fault or none, and gives back the
value in its final form, or None after a fault.  True is never a number and a number is never text:
TOML and JSON keep them apart, and a guess here would be a different training.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from gputasks.checks.faults import shown
from gputasks.units import parse_duration, parse_memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from gputasks.checks.faults import Faults

MAX_COUNT = 4096
"""More GPUs, workers or slots than any node has: a slip of the keyboard, not a wish."""


def whole(faults: Faults, key: str, value: Any, *, least: int, most: int = MAX_COUNT) -> int | None:
    """A whole number from `least` to `most`."""
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
        return int(value)
    faults.must(key, f"a whole number from {least} to {most}", value)
    return None


def positive(faults: Faults, key: str, value: Any, *, most: float = MAX_COUNT) -> float | None:
    """A finite number above 0, whole or not."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    # Compared before anything else: `float(10**400)` would be an OverflowError.
    if number and 0 < value <= most and math.isfinite(value):
        return float(value)
    faults.must(key, f"a number above 0 and up to {most:g}", value)
    return None


def boolean(faults: Faults, key: str, value: Any) -> bool | None:
    """True or False, nothing that is like them."""
    if isinstance(value, bool):
        return value
    faults.must(key, "true or false", value)
    return None


def text(faults: Faults, key: str, value: Any, *, what: str = "a text") -> str | None:
    """A text that is not empty and that a command line, a file name or a terminal can hold."""
    if isinstance(value, str) and value.strip() and not has_control(value):
        return value
    faults.must(key, what, value)
    return None


def choice(faults: Faults, key: str, value: Any, valid: tuple[str, ...]) -> str | None:
    """One of a few words."""
    if isinstance(value, str) and value in valid:
        return value
    hint = ""
    if isinstance(value, str):
        from gputasks.errors import did_you_mean

        hint = did_you_mean(value, valid)
    faults.must(key, "one of " + ", ".join(f"`{v}`" for v in valid), value, hint=hint)
    return None


def memory(faults: Faults, key: str, value: Any) -> str | None:
    """A memory size, kept as it was written."""
    return value if _parsed(faults, key, value, parse_memory, str) else None


def duration(faults: Faults, key: str, value: Any, *, off: bool = True) -> float | None:
    """Seconds, or None for `off` where that is allowed, and after a fault."""
    if value == "off" and not off:
        faults.must(key, "a duration, e.g. `30s`", value)
        return None
    found = _parsed(faults, key, value, parse_duration, (str, int, float))
    return found[0] if found else None


def _parsed(
    faults: Faults, key: str, value: Any, parse: Callable[[Any], Any], kinds: Any
) -> tuple[Any] | None:
    if isinstance(value, bool) or not isinstance(value, kinds):
        wanted = (
            "a size, e.g. `16GB` or `16GiB`" if kinds is str else "a duration, e.g. `2h` or `90s`"
        )
        faults.must(key, wanted, value)
        return None
    try:
        return (parse(value),)
    except ValueError as error:
        faults.add(f"`{key}` of {faults.owner}: {error}", key)
        return None


def has_control(value: str) -> bool:
    """True for a text with NUL, a line break or another control character."""
    return not value.isprintable() and any(c < " " or c == "\x7f" for c in value)


def unsendable(value: str) -> str:
    """Why a text cannot be a word of a command line or a variable; empty when it can."""
    if "\0" in value:
        return "holds a NUL byte, which no command line can carry"
    if not value.isascii():
        try:
            value.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            return "is not valid Unicode"
    return ""


def words(faults: Faults, key: str, value: Any) -> tuple[str, ...]:
    """A list of command-line words, verbatim: texts and paths."""
    if not isinstance(value, (list, tuple)):
        faults.must(key, "a list of texts", value)
        return ()
    found = []
    for item in value:
        if hasattr(item, "__fspath__"):
            item = item.__fspath__()  # noqa: PLW2901  a path is its text from here on
        if not isinstance(item, str):
            hint = f'write `"{item}"`' if isinstance(item, (int, float)) else ""
            faults.must(key, "a list of texts only", item, hint=hint)
        elif why := unsendable(item):
            faults.add(f"{shown(item)} in `{key}` of {faults.owner} {why}", key)
        else:
            found.append(str(item))
    return tuple(found)
