"""Units, decided once: memory and durations as people write them.

Decimal `KB MB GB TB PB` are powers of 1000, binary `KiB MiB GiB TiB PiB` powers of 1024, `B` is a
byte; a fraction, any letter case and one space are accepted (`1.5GB`, `16gb`, `16 GB`).  A bare
`G` or `M` means different things to different tools (Snakemake read `2G` as 1907 MB) and is
refused, with both spellings shown.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

_MEMORY = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([KMGTP]?i?B)", re.ASCII | re.IGNORECASE)
_BARE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([KMGTP])i?", re.ASCII | re.IGNORECASE)
_POWER = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_DURATION = re.compile(
    r"(?:(?P<d>[0-9]+(?:\.[0-9]+)?)d)?(?:(?P<h>[0-9]+(?:\.[0-9]+)?)h)?"
    r"(?:(?P<m>[0-9]+(?:\.[0-9]+)?)m)?(?:(?P<s>[0-9]+(?:\.[0-9]+)?)s)?",
    re.ASCII,
)
_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}


def parse_memory(text: str) -> int:
    """Bytes from `"16GB"`, `"1.5 GiB"`, `"512mb"`; a fraction of a byte rounds up.

    Raises:
        ValueError: not a memory size of this grammar, or not more than nothing.
    """
    bare = _BARE.fullmatch(text)
    if bare:
        number, unit = bare[1], bare[2].upper()
        raise ValueError(
            f"`{text}` does not say which unit it means: write `{number}{unit}B`"
            f" (powers of 1000) or `{number}{unit}iB` (powers of 1024)"
        )
    match = _MEMORY.fullmatch(text)
    if not match:
        raise ValueError(f"`{text}` is no memory size: write e.g. `16GB` or `16GiB`")
    unit = match[2].upper()
    base, power = (1024, _POWER[unit[:-2]]) if unit.endswith("IB") else (1000, _POWER[unit[:-1]])
    size = math.ceil(Decimal(match[1]) * base**power)
    if size <= 0:
        raise ValueError(f"`{text}` is no memory: must be more than 0")
    return size


def parse_duration(text: str | float) -> float | None:
    """Seconds from `"2h"`, `"1h30m"`, `"90s"` or a number; None from `"off"`.

    Raises:
        ValueError: not a duration of this grammar, or not more than nothing.
    """
    if isinstance(text, (int, float)) and not isinstance(text, bool):
        if not math.isfinite(text) or text <= 0:
            raise ValueError(f"`{text}` is no duration: must be more than 0 seconds")
        return float(text)
    if not isinstance(text, str):
        raise ValueError(f"`{text!r}` is no duration: write e.g. `2h`, `30m`, `90s` or `off`")  # noqa: TRY004  one kind of fault for callers
    if text == "off":
        return None
    match = _DURATION.fullmatch(text)
    if not text or not match:
        raise ValueError(f"`{text}` is no duration: write e.g. `2h`, `30m`, `1h30m`, `90s` or `off`")
    seconds = sum(float(v) * _SECONDS[k] for k, v in match.groupdict().items() if v)
    if seconds <= 0:
        raise ValueError(f"`{text}` is no duration: must be more than 0 seconds")
    return seconds


def format_duration(seconds: float) -> str:
    """`42s`, `3m12s`, `1h04m`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def format_bytes(size: float) -> str:
    """`512 B`, `1.5 GB`: powers of 1000, as in `parse_memory`."""
    value = float(size)
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if abs(value) < 1000 or unit == "TB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError("unreachable")
