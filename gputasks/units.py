"""Units, decided once: memory and durations as people write them.

========= ==================================================== ===================================
memory    meaning                                              examples
========= ==================================================== ===================================
accepted  `B`; `KB MB GB TB PB` = powers of 1000;              `16GB` `1.5GB` `16gb` `16 GB`
          `KiB MiB GiB TiB PiB` = powers of 1024;              `16GiB` `512mib`
          a fraction, any letter case, one space
refused   a bare `K M G T P` (Snakemake read `2G` as 1907 MB), `16G` `16Gi` `16` `1e3MB` `.5GB`
          exponents, signs, digits that are not ASCII, 0       `+16GB` `0GB` `-1GB`
========= ==================================================== ===================================

Durations are `d h m s` in this order, each at most once, each with a fraction if need be (`2h`,
`1h30m`, `90s`, `0.5s`), or a number of seconds, or `off`.

Read by hand, not by regular expressions: compiling three of them costs more than everything else
that a no-op does here.
"""

from __future__ import annotations

import math

_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}

MAX_BYTES = 2**63 - 1
"""What a file size or a cgroup limit can hold."""
MAX_SECONDS = 10 * 366 * 86400.0
"""Ten years: longer waits overflow the timers of the operating system."""


def parse_memory(text: str) -> int:
    """Bytes from `"16GB"`, `"1.5 GiB"`, `"512mb"`; a fraction of a byte rounds up.

    Raises:
        ValueError: not a memory size of this grammar, nothing, or more than 2^63 - 1 bytes.

    """
    if not isinstance(text, str):
        raise ValueError(f"`{text!r}` is no memory size: write e.g. `16GB` or `16GiB`")  # noqa: TRY004  one kind of fault for callers
    number, unit = _split(text)
    unit = unit.removeprefix(" ").lower()
    if not number or not unit.isascii():
        raise ValueError(f"`{text}` is no memory size: write e.g. `16GB` or `16GiB`")
    if unit in ("", *_BARE):
        letter = unit[:1].upper() or "G"
        raise ValueError(
            f"`{text}` does not say which unit it means: write `{number}{letter}B`"
            f" (powers of 1000) or `{number}{letter}iB` (powers of 1024)"
        )
    if unit not in _FACTORS:
        raise ValueError(f"`{text}` is no memory size: write e.g. `16GB` or `16GiB`")
    whole, _, fraction = number.partition(".")
    # Integers only: `0.1PB` is exactly 10^14, and no float stands between.
    size: int = -(-int(whole + fraction) * _FACTORS[unit] // 10 ** len(fraction))
    if size <= 0:
        raise ValueError(f"`{text}` is no memory: must be more than 0")
    if size > MAX_BYTES:
        raise ValueError(f"`{text}` is more memory than can be counted")
    return size


_FACTORS = {
    f"{letter}{infix}b": base**power
    for letter, power in _POWERS.items()
    for infix, base in (("", 1000), ("i", 1024))
    if letter or not infix
}
_BARE = frozenset(f"{letter}{infix}" for letter in "kmgtp" for infix in ("", "i"))


def parse_duration(text: str | float) -> float | None:
    """Seconds from `"2h"`, `"1h30m"`, `"90s"` or a number; None from `"off"`.

    Raises:
        ValueError: not a duration of this grammar, not more than nothing, or over ten years.

    """
    if isinstance(text, (int, float)) and not isinstance(text, bool):
        # An int of thousands of digits cannot be written out.
        return _in_range(text, str(text) if isinstance(text, float) or abs(text) < 10**30 else "…")
    if not isinstance(text, str):
        raise ValueError(f"`{text!r}` is no duration: write e.g. `2h`, `30m`, `90s` or `off`")  # noqa: TRY004  one kind of fault for callers
    if text == "off":
        return None
    seconds, rest, units = 0.0, text, "dhms"
    while rest:
        number, rest = _split(rest)
        if number and not rest and units == "dhms":
            raise ValueError(
                f"`{text}` does not say which unit it means: write `{text}s` or `{text}m`"
            )
        unit, rest = rest[:1], rest[1:]
        if not number or not unit or unit not in units:
            raise ValueError(f"`{text}` is no duration: write e.g. `2h`, `30m`, `1h30m` or `off`")
        units = units[units.index(unit) + 1 :]
        seconds += float(number) * _SECONDS[unit]
    if not text:
        raise ValueError("an empty text is no duration: write e.g. `2h`, `30m` or `off`")
    return _in_range(seconds, text)


def _in_range(seconds: float, text: str) -> float:
    # Compared first: `float(10**400)` would be an OverflowError.
    if not seconds > 0:  # NaN too
        raise ValueError(f"`{text}` is no duration: must be more than 0 seconds")
    if seconds > MAX_SECONDS:
        raise ValueError(f"`{text}` is longer than ten years: write `off` for no limit")
    return float(seconds)


def _split(text: str) -> tuple[str, str]:
    """The decimal number at the start, and what follows; no number when it is none, or absurd."""
    end = 0
    while end < len(text) and text[end] in "0123456789.":
        end += 1
    number = text[:end]
    whole, point, fraction = number.partition(".")
    wrong = not whole or (point and not fraction) or "." in fraction or end > 40
    return ("" if wrong else number), text[end:]


def format_duration(seconds: float) -> str:
    """`42s`, `3m12s`, `1h04m`; `?` for what is not finite."""
    if not math.isfinite(seconds):
        return "?"
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def format_bytes(size: float) -> str:
    """`512 B`, `1.5 GB`: powers of 1000, as in `parse_memory`."""
    value = float(size)
    if abs(value) < 1000:
        return f"{value:.0f} B"
    for unit in ("KB", "MB", "GB", "TB"):
        value /= 1000
        if abs(value) < 999.95:  # 999.95 would be shown as `1000.0`
            return f"{value:.1f} {unit}"
    return f"{value / 1000:.1f} PB"
