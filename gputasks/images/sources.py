"""Which paths of a context the instructions of a Dockerfile take.

`COPY train.py src/*.txt /app/` takes those and nothing else, so nothing else need be hashed, sent,
or cause a build.  A name takes what lies below it, `*` and `?` and `[…]` match within one name.
"""

from __future__ import annotations

import os
import posixpath
from typing import TYPE_CHECKING

from gputasks.images.patterns import BadPatternError, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Sources:
    """Paths and patterns that are taken; None for everything."""

    def __init__(self, sources: Sequence[str] | None) -> None:
        self._ways: list[list[Callable[[str], bool]]] = []
        self._plain: list[str] = []
        self.all = sources is None
        for source in sources or ():
            clean = posixpath.normpath(source.strip().lstrip("/") or ".")
            if clean == "." or clean.startswith(".."):
                self.all = True
                return
            try:
                self._ways.append([parse([_name_only(p)])[0].matches for p in clean.split("/")])
            except (BadPatternError, IndexError):
                self.all = True
                return
            self._plain.append(clean)

    @property
    def nothing(self) -> bool:
        """True when no file of the context is taken."""
        return not self.all and not self._ways

    def ask(self, path: str) -> tuple[bool, bool]:
        """Whether a path is taken, and whether something below it may be."""
        if self.all:
            return True, True
        names = path.split("/")
        inside = may = False
        for way in self._ways:
            # `zip` stops at the shorter: a path below the source, or one on the way to it.
            if all(matches(name) for matches, name in zip(way, names, strict=False)):
                if len(names) >= len(way):
                    inside = True
                else:
                    may = True
        return inside, inside or may

    def lead_through_links(self, root: str) -> bool:
        """True when a source is, or lies behind, a symbolic link: what it needs is elsewhere."""
        if self.all:
            return False
        for source in self._plain:
            at = root
            for name in source.split("/"):
                if any(c in name for c in "*?[\\"):
                    if _has_links(at):
                        return True
                    break
                at = os.path.join(at, name)
                if os.path.islink(at):
                    return True
        return False


def _has_links(folder: str) -> bool:
    try:
        with os.scandir(folder or ".") as found:
            return any(item.is_symlink() for item in found)
    except OSError:
        return False


def _name_only(pattern: str) -> str:
    """`**` is nothing special here, and `!` neither."""
    while "**" in pattern:
        pattern = pattern.replace("**", "*")
    return f"\\{pattern}" if pattern.startswith("!") else pattern
