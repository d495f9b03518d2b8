"""`gputasks gc`: tells what may go and how much that is; removes it with `--yes`."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

from gputasks.cache import sweep
from gputasks.cli.place import project
from gputasks.errors import ConfigError
from gputasks.run import garbage
from gputasks.run.keeping import open_cache
from gputasks.units import format_bytes, parse_duration, parse_memory

if TYPE_CHECKING:
    from collections.abc import Callable

NEVER = float("inf")


def gc(
    *,
    yes: bool,
    as_json: bool,
    keep_runs: int,
    older_than: str,
    unused_for: str,
    cache_cap: str | None,
) -> int:
    """Print what may go, and remove it when told to.

    Raises:
        ConfigError: an option is no number, duration or size.

    """
    layout = project()
    age = _parsed("--older-than", older_than, parse_duration)
    unused = _parsed("--unused-for", unused_for, parse_duration)
    if keep_runs < 1:
        raise ConfigError("`--keep-runs` must be 1 or more: a resume needs the newest one")
    cache = open_cache(layout)
    cap = cache.limits()[0]
    if cache_cap is not None:
        cap = int(_parsed("--cache-cap", cache_cap, parse_memory))
    found = garbage.items(layout, keep_runs=keep_runs, older_than_s=age)
    more, going = garbage.cache_items(cache, cap=cap, unused_since=time.time() - unused)
    found += more
    total = sum(item.size for item in found)
    if yes:
        garbage.remove(found)
        sweep.remove(cache, going)
    if as_json:
        data = {"bytes": total, "removed": yes, "items": [item._asdict() for item in found]}
        print(json.dumps(data, indent=1))
        return 0
    for item in sorted(found, key=lambda i: (i.kind, -i.size)):
        where = os.path.relpath(item.path)
        print(f"{item.kind:<11} {format_bytes(item.size):>9}  {where}  ({item.why})")
    if not found:
        print("nothing to remove")
    elif yes:
        print(f"removed {format_bytes(total)}")
    else:
        print(f"{format_bytes(total)} in all; nothing was removed: `gputasks gc --yes` does it")
    return 0


def _parsed(option: str, text: str, parse: Callable[[str], float | None]) -> float:
    """The number; `0` needs no unit here, and `off` is never."""
    try:
        found = 0.0 if text == "0" else parse(text)
    except ValueError as error:
        raise ConfigError(f"`{option}`: {error}") from None
    return NEVER if found is None else found
