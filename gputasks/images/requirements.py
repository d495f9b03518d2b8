"""Python requirements: read, put into one order, divided into what is heavy and what is not.

What pip would install decides, so comments, blank lines, order and the spelling of spaces do not
count.  Files that are named inside (`-r`, `-c`) are read here: the image needs none of them.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

from gputasks.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

HEAVY = ("torch", "torchvision", "torchaudio", "jax", "jaxlib", "tensorflow", "tensorflow-cpu")
"""Frameworks of gigabytes, installed in a layer of their own below all others."""

_NAME = r"[A-Za-z0-9][\w.-]*"
_COMMENT = r"(?:^|\s+)#.*$"
_DEPTH = 10


class Requirements(NamedTuple):
    """What to install: options in their order, requirements and constraints sorted."""

    options: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()

    @property
    def heavy(self) -> tuple[str, ...]:
        """Frameworks that get their own layer; none where hashes demand all packages at once."""
        if any("--hash" in p for p in self.packages):
            return ()
        return tuple(p for p in self.packages if _plain_name(p) in HEAVY)


def read(requirements: str | Sequence[str]) -> Requirements:
    """Requirements from a file or a list.

    Raises:
        ConfigError: a file is missing, or a line that an image cannot hold.

    """
    found = _Reader()
    if isinstance(requirements, str):
        found.file(requirements, 0)
    else:
        found.lines(list(requirements), "", 0)
    return Requirements(
        tuple(dict.fromkeys(found.options)),
        tuple(sorted(set(found.packages))),
        tuple(sorted(set(found.constraints))),
    )


class _Reader:
    def __init__(self) -> None:
        self.options: list[str] = []
        self.packages: list[str] = []
        self.constraints: list[str] = []

    def file(self, path: str, depth: int, *, constraints: bool = False) -> None:
        if depth > _DEPTH:
            raise ConfigError(f"requirements include each other: `{path}`", place=path)
        try:
            with open(path, "rb") as file:
                text = file.read().decode("utf-8-sig", "replace")
        except OSError as error:
            raise ConfigError(
                f"requirements `{path}` cannot be read: {error.strerror}", place=path
            ) from None
        self.lines(text.splitlines(), path, depth, constraints=constraints)

    def lines(self, lines: list[str], path: str, depth: int, *, constraints: bool = False) -> None:
        number = 0
        while number < len(lines):
            place = f"{path}:{number + 1}" if path else ""
            line = re.sub(_COMMENT, "", lines[number])
            number += 1
            while line.endswith("\\") and number < len(lines):
                line = line[:-1] + " " + re.sub(_COMMENT, "", lines[number])
                number += 1
            line = " ".join(line.split())
            if line:
                self.line(line, path, place, depth, constraints=constraints)

    def line(self, line: str, path: str, place: str, depth: int, *, constraints: bool) -> None:
        flag = re.match(r"(-r|--requirement|-c|--constraint)(?:\s+|=|(?=[^\s-]))(.+)", line)
        if flag:
            inner = os.path.normpath(os.path.join(os.path.dirname(path), flag[2].strip("\"'")))
            wanted = constraints or flag[1] in ("-c", "--constraint")
            self.file(inner, depth + 1, constraints=wanted)
        elif line.startswith(("-e", "--editable")) or re.match(r"\.{0,2}/|file:|\.\Z", line):
            raise ConfigError(
                f"`{line}` is a path of this machine, which the image does not have",
                place=place,
                hint='`copy={"pkg": "/opt/pkg"}` and `run=["pip install /opt/pkg"]`, or a wheel',
            )
        elif line.startswith("-"):
            self.options.append(line)
        elif constraints:
            self.constraints.append(line)
        else:
            self.packages.append(line)


def _plain_name(requirement: str) -> str:
    found = re.match(_NAME, requirement)
    return re.sub(r"[-_.]+", "-", found[0]).lower() if found else ""
