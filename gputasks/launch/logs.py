"""The end of a log, however large the log is."""

from __future__ import annotations

import os

READ = 256 * 1024
MAX_LINE = 500


def read_end(path: str, size: int = READ) -> str:
    """The last bytes as text; empty when there is no such file."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - size))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def last_lines(text: str, count: int = 20) -> list[str]:
    """The last lines that say something.  A carriage return ends a line too: progress bars."""
    lines = text.replace("\r", "\n").splitlines()
    return [line.rstrip()[:MAX_LINE] for line in lines if line.strip()][-count:]
