"""Writing to a stream that may be closed, or of an encoding that knows little."""

from __future__ import annotations

import os
from typing import Any, TextIO


class Stream:
    """Lines to a text stream; a stream that is gone is given up, never an error of the run."""

    def __init__(self, stream: TextIO) -> None:
        self.raw = stream
        self._gone = False

    def line(self, text: str) -> None:
        """Write one line, whole."""
        if self._gone:
            return
        encoding = self.encoding or "utf-8"
        safe = text.encode(encoding, "backslashreplace").decode(encoding)
        try:
            self.raw.write(safe + "\n")
            self.raw.flush()
        except (OSError, ValueError):
            self._gone = True

    @property
    def encoding(self) -> str | None:
        """What the stream writes, where it knows."""
        return getattr(self.raw, "encoding", None)

    @property
    def live(self) -> bool:
        """True when a display that moves makes sense here."""
        chosen = os.environ.get("GPUTASKS_OUTPUT")
        if chosen in ("plain", "json") or os.environ.get("TERM") == "dumb":
            return False
        return bool(self._isatty())

    def _isatty(self) -> Any:
        try:
            return self.raw.isatty()
        except (OSError, ValueError):
            return False
