"""On which line of a TOML text each key stands, for the places in messages.

tomli keeps no positions.  This reader follows headers and keys and skips values; it accepts any
text, also one that is not TOML, and then finds what it can.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

Path = tuple[str, ...]


@dataclass(frozen=True)
class Spot:
    """Where and how something was written: line from 1, and `[runs.a]` or `lr`."""

    line: int
    text: str


@dataclass
class Lines:
    """Keys of one text.

    Args:
        first: path of a table or key -> where it first appears.  Tables of an array have their
            number in the path: `("nodes", "0", "ssh")`.
        again: pairs of spots that define the same path twice.

    """

    first: dict[Path, Spot] = field(default_factory=dict)
    again: list[tuple[Spot, Spot]] = field(default_factory=list)

    def line(self, path: Path) -> int | None:
        """The line of a path, or of the nearest path above it."""
        while path:
            if path in self.first:
                return self.first[path].line
            path = path[:-1]
        return None


def key_lines(text: str) -> Lines:
    """Read the lines of all keys; never raises."""
    return _Reader(text).read()


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._line = 1
        self._counted = 0
        self._lines = Lines()
        self._defined: dict[Path, Spot] = {}
        self._arrays: dict[Path, int] = {}

    def read(self) -> Lines:
        table: Path = ()
        while self._skip_space("\n"):
            start = self._at
            if self._text[start] == "[":
                table = self._header() or table
                self._skip_to_line_end()
            else:
                parts = self._key()
                if parts and self._next_is("="):
                    self._note(table, parts, self._text[start : self._at].strip(), start)
                    self._at += 1
                    self._skip_value()
                else:
                    self._skip_to_line_end()
        return self._lines

    def _header(self) -> Path | None:
        start = self._at
        array = self._text.startswith("[[", start)
        self._at += 2 if array else 1
        parts = self._key()
        if not parts or not self._next_is("]"):
            return None
        spelt = f"[{'[' * array}{self._text[start + 1 + array : self._at].strip()}]{']' * array}"
        # `[nodes.gpu]` after `[[nodes]]` belongs to the last of the nodes.
        path: Path = ()
        for part in parts[:-1]:
            path = (*path, part)
            if path in self._arrays:
                path = (*path, str(self._arrays[path]))
        whole = (*path, parts[-1])
        if array:
            number = self._arrays[whole] = self._arrays.get(whole, -1) + 1
            self._lines.first.setdefault(whole, self._spot(spelt, start))
            whole = (*whole, str(number))
        self._note(whole[:-1], (whole[-1],), spelt, start)
        return whole

    def _note(self, table: Path, parts: Path, spelt: str, start: int) -> None:
        spot = self._spot(spelt, start)
        path = (*table, *parts)
        for n in range(1, len(path) + 1):
            self._lines.first.setdefault(path[:n], spot)
        if path in self._defined:
            self._lines.again.append((self._defined[path], spot))
        self._defined.setdefault(path, spot)

    def _spot(self, spelt: str, start: int) -> Spot:
        self._line += self._text.count("\n", self._counted, start)
        self._counted = start
        return Spot(self._line, spelt)

    def _key(self) -> Path:
        """Dotted parts from here on; empty when there is no key."""
        parts: list[str] = []
        while True:
            self._skip_space()
            part = self._part()
            if part is None:
                return ()
            parts.append(part)
            if not self._next_is("."):
                return tuple(parts)
            self._at += 1

    def _part(self) -> str | None:
        quote = self._text[self._at : self._at + 1]
        start = self._at
        if quote in ("'", '"') and quote:
            self._skip_string()
            raw = self._text[start : self._at]
            if quote == '"' and "\\" in raw:
                try:
                    return str(json.loads(raw))
                except ValueError:
                    pass
            return raw[1:-1]
        while self._at < len(self._text) and (
            self._text[self._at].isalnum() or self._text[self._at] in "_-"
        ):
            self._at += 1
        return self._text[start : self._at] or None

    def _next_is(self, sign: str) -> bool:
        self._skip_space()
        return self._text.startswith(sign, self._at)

    def _skip_space(self, more: str = "") -> bool:
        """Pass blanks, and comments where lines may end; False at the end of the text."""
        while self._at < len(self._text):
            c = self._text[self._at]
            if more and c == "#":
                self._skip_to_line_end()
            elif c in " \t\r" or (more and c == "\n"):
                self._at += 1
            else:
                return True
        return False

    def _skip_to_line_end(self) -> None:
        end = self._text.find("\n", self._at)
        self._at = len(self._text) if end < 0 else end

    def _skip_value(self) -> None:
        """Pass a value: up to the line's end outside of brackets and strings."""
        depth = 0
        while self._at < len(self._text):
            c = self._text[self._at]
            if c in "\"'":
                self._skip_string()
                continue
            if c == "#":
                self._skip_to_line_end()
                continue
            if c == "\n" and depth <= 0:
                return
            depth += (c in "[{") - (c in "]}")
            self._at += 1

    def _skip_string(self) -> None:
        quote = self._text[self._at]
        long = self._text.startswith(quote * 3, self._at)
        end = quote * 3 if long else quote
        self._at += len(end)
        while self._at < len(self._text):
            if self._text[self._at] == "\\" and quote == '"':
                self._at += 2
            elif self._text.startswith(end, self._at):
                self._at += len(end)
                while long and self._text.startswith(quote, self._at):  # `""""` ends with a quote
                    self._at += 1
                return
            elif self._text[self._at] == "\n" and not long:
                return
            else:
                self._at += 1
        self._at = min(self._at, len(self._text))
