"""The end of a log, however large the log is, and as a person would have seen it."""

from __future__ import annotations

import os
import re

READ = 256 * 1024
MAX_LINE = 500

_MOVES = re.compile(r"(\n|\r|\x1b\[\d*A)")
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, erasing, moving
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles, links
    r"|\x1b[ -/]*[0-~]"
)


def read_end(path: str, size: int = READ) -> str:
    """The last bytes as text; empty when there is no such file."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - size))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def settled(text: str) -> list[str]:
    """Lines as they stand in the end, without escapes.

    Progress bars write a line again and again after a carriage return, and nested ones go up a line
    (`ESC [ A`): of each line only the last state that says something is kept.
    """
    rows, at, fresh = [""], 0, True
    for piece in _MOVES.split(text):
        if piece == "\n":
            at, fresh = at + 1, True
            if at == len(rows):
                rows.append("")
        elif piece == "\r":
            fresh = True
        elif piece.startswith("\x1b[") and _MOVES.fullmatch(piece):
            at, fresh = max(0, at - int(piece[2:-1] or 1)), False
        elif piece:
            said = _ESCAPES.sub("", piece)
            if not fresh:
                rows[at] += said
            elif said.strip():
                rows[at] = said
            fresh = False
    return rows


def last_lines(text: str, count: int = 20) -> list[str]:
    """The last lines that say something."""
    return [line.rstrip()[:MAX_LINE] for line in settled(text) if line.strip()][-count:]
