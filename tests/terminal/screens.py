"""doit in a real terminal, as a person sees it: a screen, keys, a window that changes its size."""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Callable

import pexpect
import pyte
from typing_extensions import Self


class Terminal:
    """A running doit and its screen."""

    def __init__(
        self,
        project,
        *args: str,
        columns: int = 80,
        rows: int = 50,
        program: list[str] | None = None,
        **env: str,
    ) -> None:
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.Stream(self.screen)
        environ = project.environ(**{"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **env})
        if "COLUMNS" not in env:
            del environ["COLUMNS"]
        program = program or [sys.executable, "-m", "doit", "run", *args]
        self.child = pexpect.spawn(
            program[0], program[1:], cwd=str(project.root), env=environ,
            dimensions=(rows, columns), encoding="utf-8", codec_errors="replace", timeout=40,
        )  # fmt: skip
        self.raw = ""
        self.frames: list[str] = []
        self.checked = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.child.close(force=True)

    @property
    def text(self) -> str:
        """What stands on the screen now."""
        return "\n".join(line.rstrip() for line in self.screen.display).strip("\n")

    def _read(self) -> bool:
        """Take what comes next; False at the end."""
        try:
            data = self.child.read_nonblocking(65536, timeout=30)
        except pexpect.EOF:
            return False
        self.raw += data
        self._stream.feed(data)
        self.frames.append(self.text)
        return True

    def until(self, *wanted: str, unwanted: str = "", seconds: float = 40) -> str:
        """Wait until all of these are on the screen at once; the screen."""
        deadline = time.monotonic() + seconds
        while not all(w in self.text for w in wanted) or (unwanted and unwanted in self.text):
            if time.monotonic() > deadline or not self._read():
                raise AssertionError(f"{wanted} did not come; the screen:\n{self.text}")
        return self.text

    def interrupt(self) -> None:
        """Ctrl-C."""
        self.child.sendintr()

    def resize(self, columns: int, rows: int = 50, *, reflow: bool = False) -> None:
        """As somebody who pulls at the window's corner.

        Some terminals (xterm, screen) cut what finds no room, others (VTE, kitty, tmux) break lines
        anew; the cursor stays on its character in both.
        """
        while self._pending():
            self._read()
        if reflow:
            self._reflow(columns)
        self.screen.resize(rows, columns)
        self.child.setwinsize(rows, columns)

    def _reflow(self, columns: int) -> None:
        lines = [line.rstrip() for line in self.screen.display]
        y, x = self.screen.cursor.y, self.screen.cursor.x
        pieces: list[str] = []
        for number, line in enumerate(lines):
            if number == y:
                row, column = len(pieces) + x // columns, x % columns
            pieces += [line[i : i + columns] for i in range(0, len(line), columns)] or [""]
        lost = max(0, row - self.screen.lines + 1)
        self.screen.erase_in_display(2)
        for number, piece in enumerate(pieces[lost : lost + self.screen.lines]):
            self.screen.cursor_position(number + 1, 1)
            self.screen.draw(piece)
        self.screen.cursor_position(row - lost + 1, column + 1)

    def _pending(self) -> bool:
        return bool(select.select([self.child.child_fd], [], [], 0)[0])

    def redrawn(self, times: int = 2) -> None:
        """Wait until the block was drawn so often."""
        seen = self.raw.count("\x1b[J")
        while self.raw.count("\x1b[J") < seen + times:
            assert self._read(), self.text

    def end(self, before_close: Callable[[int], bool] | None = None) -> str:
        """Wait for the end; the last screen."""
        while self._read():
            if before_close is not None:
                self.checked = before_close(self.child.child_fd)
        self.child.close()
        return self.text

    @property
    def code(self) -> int:
        """doit's exit code."""
        return self.child.exitstatus
