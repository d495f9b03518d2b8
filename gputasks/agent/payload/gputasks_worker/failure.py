"""How a script failed, as data: `rank-N.error.json` for us, and torch's own error file.

Ours has `type`, `message`, `place` (`file:line`, relative to the folder of the start when it lies
below), `time` (Unix, seconds), `exit_code`, `local_rank`, `sigterm` (it came after a SIGTERM, so it
may be its consequence) and `hint`.
"""

from __future__ import annotations

import json
import os
import re
import time
import traceback

from .rank import write_whole

TYPE_CHECKING = False  # the script's own failure must not wait for typing
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from .rank import Rank

_LIBRARY = os.path.dirname(os.path.abspath(os.__file__))
_AGENT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_FRAME = re.compile(r'^\s*File "(.+)", line (\d+)', re.MULTILINE)
MAX_MESSAGE = 20000


class Failure:
    """An exception that ends the script.

    Args:
        error: what was raised.
        rank: who raised it.
        trace: its traceback, from the script's first frame on.

    """

    def __init__(self, error: BaseException, rank: Rank, trace: TracebackType | None) -> None:
        self.error = error
        self.rank = rank
        self.trace = trace
        self.time = time.time()
        try:
            self.message = str(error)
        except Exception:  # noqa: BLE001  the script's own __str__ may do anything
            self.message = "(the exception cannot be turned into text)"

    @property
    def type(self) -> str:
        """`ValueError`, `torch.OutOfMemoryError`."""
        kind = type(self.error)
        plain = kind.__module__ in ("builtins", "__main__")
        return kind.__qualname__ if plain else f"{kind.__module__}.{kind.__qualname__}"

    @property
    def exit_code(self) -> int:
        """The code with which Python ends when nobody catches this, as a shell tells it."""
        if isinstance(self.error, SystemExit):
            code = self.error.code
            return code & 0xFF if isinstance(code, int) else 1
        return 130 if isinstance(self.error, KeyboardInterrupt) else 1

    @property
    def place(self) -> str:
        """The innermost line of the user's own, neither the library's nor a package's."""
        for name, line in reversed(list(self._frames())):
            if _is_users(name):
                below = name.startswith(self.rank.start_folder + os.sep)
                return f"{os.path.relpath(name, self.rank.start_folder) if below else name}:{line}"
        return ""

    def _frames(self) -> Iterator[tuple[str, int]]:
        trace = self.trace
        while trace is not None:
            yield trace.tb_frame.f_code.co_filename, trace.tb_lineno
            trace = trace.tb_next
        if isinstance(self.error, SyntaxError) and self.error.filename:
            yield self.error.filename, self.error.lineno or 0
        # What failed in a process of a DataLoader is told as text in the message.
        if "Original Traceback" in self.message:
            yield from ((name, int(line)) for name, line in _FRAME.findall(self.message))

    def write(self, *, sigterm: bool) -> None:
        """Both files; one that torch's `@record` has already written stays."""
        ours = {
            "type": self.type,
            "message": self.message[:MAX_MESSAGE],
            "place": self.place,
            "time": self.time,
            "exit_code": self.exit_code,
            "local_rank": self.rank.local_rank,
            "sigterm": sigterm,
            "hint": str(getattr(self.error, "gputasks_hint", "")),
        }
        write_whole(self.rank.file("error.json"), json.dumps(ours, indent=1).encode())
        theirs = os.environ.get("TORCHELASTIC_ERROR_FILE", "")
        if theirs and not os.path.exists(theirs):
            write_whole(theirs, json.dumps(self._torch_schema()).encode())

    def _torch_schema(self) -> dict[str, object]:
        """What torch's agent reads, see `ErrorHandler.record_exception` of torch 2.13."""
        text = "".join(traceback.format_exception(type(self.error), self.error, self.trace))
        first = next((line for line in self.message.splitlines() if line.strip()), "")
        return {
            "message": {
                "message": f"{self.type}: {first}",
                "extraInfo": {"py_callstack": text, "timestamp": str(int(self.time))},
                "errorCode": self.exit_code,
            }
        }


def _is_users(name: str) -> bool:
    inside = any(name.startswith(folder + os.sep) for folder in (_LIBRARY, _AGENT))
    packages = f"{os.sep}site-packages{os.sep}" in name or f"{os.sep}dist-packages{os.sep}" in name
    return not (inside or packages or name.startswith("<"))
