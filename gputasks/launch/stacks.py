"""Stacks as Python's faulthandler dumps them, and what a rank is doing by its stack.

Thread 0x00007f… (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 327 in wait

Current thread 0x00007f… (most recent call first):
  File "…/site-packages/torch/distributed/distributed_c10d.py", line 3252 in all_reduce
  File "/home/me/project/train.py", line 22 in work
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

_THREAD = re.compile(r"^(Current thread|Thread|Stack) ?.*\(most recent call first\):$")
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$')
_LIBRARY = re.compile(
    r"/lib(?:64)?/python3\.\d+/(?!(?:site|dist)-packages/)|/lib/python3\d+\.zip/|^<"
)
_PACKAGES = re.compile(r"/(?:site|dist)-packages/|/gputasks/agent/(?:shim\.py|payload/)")
_TOGETHER = re.compile(r"/torch/distributed/|/torch/nn/parallel/|/torch/autograd/")
MAX_SOURCE = 60


@dataclass(frozen=True)
class Frame:
    """One call: file, line, function."""

    file: str
    line: int
    function: str

    @property
    def of_user(self) -> bool:
        """True when it is neither the library's nor a package's nor our own."""
        return not (self.of_library or _PACKAGES.search(self.file))

    @property
    def of_library(self) -> bool:
        """True when it belongs to Python's own library."""
        return bool(_LIBRARY.search(self.file))

    @property
    def waits(self) -> bool:
        """True when torch waits there for other ranks."""
        return bool(_TOGETHER.search(self.file))

    @property
    def place(self) -> str:
        """`file:line`, relative to the current folder when it lies below it."""
        here = os.getcwd() + os.sep
        name = self.file.removeprefix(here)
        return f"{name}:{self.line}"


@dataclass(frozen=True)
class Doing:
    """What a rank is in the midst of.

    Args:
        what: the source line, when the innermost frame is the user's, else a function of a package.
        place: of the innermost frame of the user's, or empty.
        waits: for the other ranks.

    """

    what: str
    place: str
    waits: bool


def main_frames(text: str) -> list[Frame]:
    """The main thread's frames, innermost first.

    The signal arrives in the main thread, which is therefore the "current" one.
    """
    threads: list[tuple[bool, list[Frame]]] = []
    for line in text.splitlines():
        head, frame = _THREAD.match(line), _FRAME.match(line)
        if head:
            threads.append((head[1] == "Current thread", []))
        elif frame and threads:
            threads[-1][1].append(Frame(frame[1], int(frame[2]), frame[3]))
    current = [frames for is_current, frames in threads if is_current]
    # Without the interpreter's lock none is current; the main thread is the oldest, the last one.
    return (current or [frames for _, frames in threads] or [[]])[-1]


def doing(text: str) -> Doing | None:
    """What the rank with this stack does, None when there is no stack in it."""
    frames = main_frames(text)
    if not frames:
        return None
    top = next((frame for frame in frames if not frame.of_library), frames[0])
    user = next((frame for frame in frames if frame.of_user), None)
    what = _source(top) if top.of_user else ""
    return Doing(what or top.function, user.place if user else "", top.waits)


def place_of_crash(text: str) -> str:
    """Where the user's code was when the process crashed (faulthandler's "Fatal Python error")."""
    _, found, stack = text.rpartition("Fatal Python error:")
    frames = main_frames(stack) if found else []
    return next((frame.place for frame in frames if frame.of_user), "")


def _source(frame: Frame) -> str:
    import linecache

    text = linecache.getline(frame.file, frame.line).strip()
    return f"`{text[:MAX_SOURCE]}`" if text else ""
