"""doit in a real terminal, as a person sees it: a screen, keys, a window that changes its size."""

from __future__ import annotations

import sys
import time

import pexpect
import pyte
from typing_extensions import Self


class Terminal:
    """A running doit and its screen."""

    def __init__(self, project, *args: str, columns: int = 80, rows: int = 50, **env: str) -> None:
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.Stream(self.screen)
        environ = project.environ(**{"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **env})
        if "COLUMNS" not in env:
            del environ["COLUMNS"]
        self.child = pexpect.spawn(
            sys.executable, ["-m", "doit", "run", *args], cwd=str(project.root), env=environ,
            dimensions=(rows, columns), encoding="utf-8", codec_errors="replace", timeout=40,
        )  # fmt: skip
        self.raw = ""
        self.frames: list[str] = []

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

    def resize(self, columns: int, rows: int = 50) -> None:
        """As somebody who pulls at the window's corner."""
        self.child.setwinsize(rows, columns)
        self.screen.resize(rows, columns)

    def end(self) -> str:
        """Wait for the end; the last screen."""
        while self._read():
            pass
        self.child.close()
        return self.text

    @property
    def code(self) -> int:
        """doit's exit code."""
        return self.child.exitstatus
