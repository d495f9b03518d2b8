"""`[cache]` of a project file: where artifacts are kept, how much, and what must stay free."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from gputasks.checks import values
from gputasks.errors import ConfigError
from gputasks.frozen import Frozen, spec
from gputasks.units import parse_memory

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gputasks.checks.faults import Faults

CACHE_KEYS = ("dir", "cap", "free_space")
DIR_VARIABLE, CAP_VARIABLE = "GPUTASKS_CACHE_DIR", "GPUTASKS_CACHE_CAP"


@spec
class CacheSettings(Frozen):
    """The cache's place and limits.

    Args:
        dir: a folder; empty for `.gputasks/cache`.
        cap: bytes that it may take, None for a fifth of its disk.
        free_space: bytes that must stay free on its disk, None for a twentieth, at most 10 GB.

    """

    dir: str = ""
    cap: int | None = None
    free_space: int | None = None


def checked_cache(faults: Faults, table: Any) -> CacheSettings:
    """The table `[cache]`."""
    if not isinstance(table, dict):
        faults.must("cache", "a table, `[cache]`", table)
        return CacheSettings()
    inner = faults.inside("`[cache]`", "cache")
    inner.unknown((k for k in table if k not in CACHE_KEYS), CACHE_KEYS)
    fields: dict[str, Any] = {}
    if "dir" in table:
        fields["dir"] = os.path.expanduser(values.text(inner, "dir", table["dir"]) or "")
    for key in ("cap", "free_space"):
        if key in table and values.memory(inner, key, table[key]) is not None:
            fields[key] = parse_memory(table[key])
    return CacheSettings(**fields)


def with_variables(settings: CacheSettings, environ: Mapping[str, str]) -> CacheSettings:
    """The same, where the shell does not say otherwise.

    Raises:
        ConfigError: `GPUTASKS_CACHE_CAP` is no size.

    """
    folder = environ.get(DIR_VARIABLE) or settings.dir
    cap = settings.cap
    if text := environ.get(CAP_VARIABLE):
        try:
            cap = parse_memory(text)
        except ValueError as error:
            raise ConfigError(f"`{CAP_VARIABLE}`: {error}") from None
    return CacheSettings(os.path.expanduser(folder), cap, settings.free_space)
