"""The bottom of a terminal: lines that are drawn again and again, below what stays.

The cursor rests on the first character of the block, not behind its last one.  When the width
changes, some terminals break long lines anew and some cut them; whichever they do, the whole block
is at or behind the cursor, and erasing from there to the end takes it away.  So no row is counted
but those that were just written, at the width that holds now.

No mode of the terminal is changed, the cursor stays visible: however doit ends, nothing has to be
set right again.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

from rich.console import Console

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TextIO

    from rich.text import Text

ERASE_LINE, ERASE_DOWN = "\x1b[K", "\x1b[J"


class Screen:
    """Draws the block; whoever else prints through Python goes above it.

    Args:
        stream: a terminal.
        colour: mark the parts of a line.

    """

    def __init__(self, stream: TextIO, *, colour: bool) -> None:
        self._stream = stream
        self._colour = colour
        self._console = Console(file=stream, force_terminal=True, highlight=False)
        self._lines: list[str] = []
        self._drawn = False
        self._gone = False
        self._closed = False
        self._unfinished = False
        self._lock = threading.RLock()
        self._taken: dict[str, Passing] = {}

    def size(self) -> tuple[int, int]:
        """Columns and rows that the block may use: a full last column would start a new row."""
        columns, rows = 80, 24
        with contextlib.suppress(OSError, ValueError):
            size = os.get_terminal_size(self._stream.fileno())
            columns, rows = size.columns or columns, size.lines or rows
        wished = os.environ.get("COLUMNS", "")
        if wished.isdecimal() and int(wished):
            columns = min(columns, int(wished))
        return max(1, columns - 1), max(1, rows - 1)

    def draw(self, lines: Sequence[Text]) -> None:
        """Put these lines where the block is."""
        with self._lock:
            self._lines = [self._paint(line) for line in lines]
            if not self._unfinished:
                self._write(self._block() or self._erase())

    def above(self, text: str) -> None:
        """A permanent text, above the block."""
        with self._lock:
            start = "\n" if self._unfinished else self._erase()
            self._unfinished = False
            self._write(f"{start}{text}\n{self._block()}")

    def passing(self, stream: TextIO, text: str) -> int:
        """Somebody prints: the block goes away until it is drawn next, and the line has ended."""
        if self._closed or not text:
            return stream.write(text)
        with self._lock:
            self._write(self._erase())
            written = stream.write(text)
            stream.flush()
            self._unfinished = not text.endswith("\n")
            return written

    def take(self) -> None:
        """From now on Python's own streams go above the block, as far as they are a terminal."""
        os.register_at_fork(after_in_child=self._in_child)
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if getattr(stream, "isatty", bool)():
                self._taken[name] = Passing(stream, self)
                setattr(sys, name, self._taken[name])

    def close(self) -> None:
        """Take the block away, give the streams back."""
        with self._lock:
            self._lines = []
            self._write(self._erase())
            self._closed = True
            for name, passing in self._taken.items():
                if getattr(sys, name) is passing:
                    setattr(sys, name, passing.stream)

    def _in_child(self) -> None:
        """A forked process has no block, and nobody who would open a lock that was closed."""
        self._closed = True
        self._drawn = False
        self._lock = threading.RLock()

    def _erase(self) -> str:
        """Nothing where no block stands: the cursor may be in somebody else's line."""
        if not self._drawn:
            return ""
        self._drawn = False
        return "\r" + ERASE_DOWN if self._in_front() else ""

    def _block(self) -> str:
        if not self._lines or self._closed or not self._in_front():
            return ""
        self._drawn = True
        text = "\r" + "\n".join(line + ERASE_LINE for line in self._lines) + ERASE_DOWN
        up = len(self._lines) - 1
        return text + (f"\x1b[{up}A\r" if up else "\r")

    def _in_front(self) -> bool:
        """False under `doit &`: the bottom of the terminal is the shell's."""
        try:
            return os.tcgetpgrp(self._stream.fileno()) == os.getpgrp()
        except (OSError, ValueError):
            return True

    def _paint(self, line: Text) -> str:
        """The line as rich writes it to this terminal: which codes its kind understands."""
        if not self._colour:
            return line.plain
        with self._console.capture() as painted:
            self._console.print(line, end="", soft_wrap=True)
        return painted.get()

    def _write(self, text: str) -> None:
        if self._gone or not text:
            return
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        try:
            self._stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
            self._stream.flush()
        except (OSError, ValueError):
            self._gone = True


class Passing:
    """In the place of `sys.stdout`: as that, but above the block."""

    def __init__(self, stream: TextIO, screen: Screen) -> None:
        self.stream = stream
        self._screen = screen

    def write(self, text: str) -> int:
        """Print."""
        return self._screen.passing(self.stream, text)

    def writelines(self, lines: Sequence[str]) -> None:
        """Print several."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)
