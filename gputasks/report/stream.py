"""Writing to a stream that may be closed, or of an encoding that knows little."""

from __future__ import annotations

import os
from typing import Any, TextIO


class Stream:
    """Lines to a text stream; a stream that is gone is given up, never an error of the run."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._gone = False

    def line(self, text: str) -> None:
        """Write one line, whole."""
        if self._gone:
            return
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        safe = text.encode(encoding, "backslashreplace").decode(encoding)
        try:
            self._stream.write(safe + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            self._gone = True

    @property
    def live(self) -> bool:
        """True when a display that moves makes sense here."""
        chosen = os.environ.get("GPUTASKS_OUTPUT")
        if chosen in ("plain", "json") or os.environ.get("TERM") == "dumb":
            return False
        return bool(self._isatty())

    def _isatty(self) -> Any:
        try:
            return self._stream.isatty()
        except (OSError, ValueError):
            return False
