"""An error on a terminal."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from gputasks.errors import render
from gputasks.report.glyphs import glyphs, spell
from gputasks.report.stream import Stream

if TYPE_CHECKING:
    from typing import TextIO

    from gputasks.errors import GputasksError

RED, CYAN, RESET = "\x1b[31m", "\x1b[36m", "\x1b[0m"


def show(error: GputasksError, stream: TextIO | None = None) -> None:
    """Print an error; colour only marks the words that say what a line is."""
    target = sys.stderr if stream is None else stream
    out = Stream(target)
    text = spell(render(error), glyphs(out.encoding, os.environ))
    if target.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb":
        lines = [
            f"{RED}error:{RESET}{t[6:]}" if t.startswith("error:")
            else f"{CYAN}hint:{RESET}{t[5:]}" if t.startswith("hint:")
            else t
            for t in text.splitlines()
        ]  # fmt: skip
        text = "\n".join(lines)
    out.line(text)
