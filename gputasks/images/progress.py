"""What builders say, as steps: the classic builder's JSON stream, buildx's rawjson.

Both are read in pieces as they come; what cannot be read is kept as text of the log, since a
builder's last words are often the only ones that matter.
"""

from __future__ import annotations

import base64
import codecs
import json
import re
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

TAIL = 20
OUR_LABEL = "LABEL io.gputasks."

_STEP = re.compile(r"Step (\d+)/(\d+) : (.*)", re.DOTALL)
_VERTEX = re.compile(r"\[(?:[\w.-]+ +)?(\d+)/(\d+)\] (.*)", re.DOTALL)
_CODE = re.compile(r"(?:returned a non-zero code|exit code): (\d+)")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Step(NamedTuple):
    """A step of a build that has begun."""

    number: int
    total: int
    text: str
    cached: bool = False


class Failure(NamedTuple):
    """Why a build ended: the step, its exit code, the builder's words, the step's last lines."""

    step: str
    exit_code: int | None
    message: str
    lines: tuple[str, ...]


class ClassicProgress:
    """Takes the objects of `POST /build` as docker-py gives them."""

    def __init__(self, tell: Callable[[Step], None], log: Callable[[str], None]) -> None:
        self._tell = tell
        self._log = log
        self._step: Step | None = None
        self._lines: deque[str] = deque(maxlen=TAIL)
        self._rest = ""
        self._waiting = False
        self.image_id = ""
        self.failure: Failure | None = None

    def take(self, said: Mapping[str, Any]) -> None:
        """One object."""
        if "stream" in said:
            self._text(str(said["stream"]))
        elif "aux" in said and isinstance(said["aux"], dict) and "ID" in said["aux"]:
            self.image_id = str(said["aux"]["ID"])
        elif "error" in said or "errorDetail" in said:
            self._fail(said)
        elif "status" in said and not said.get("progressDetail"):
            self._log(f"{said.get('id', '')} {said['status']}".strip() + "\n")

    def _text(self, text: str) -> None:
        text = _COLOUR.sub("", text)
        self._log(text)
        begun = _STEP.match(text)
        if begun:
            self._told()
            self._step = Step(int(begun[1]), int(begun[2]), begun[3].strip())
            self._waiting = True
            self._lines.clear()
            self._rest = ""
            return
        if self._waiting and not text.strip():
            return
        if " ---> Using cache" in text and self._step is not None:
            self._step = self._step._replace(cached=True)
        self._told()
        if not text.startswith((" ---> ", "Removing intermediate", "Successfully ")):
            *whole, self._rest = (self._rest + text).split("\n")
            self._lines.extend(line for line in whole if line.strip())

    def _told(self) -> None:
        """Tell a step once it is known whether it comes from the cache; our labels are no news."""
        if self._waiting and self._step is not None and OUR_LABEL not in self._step.text:
            self._tell(self._step)
        self._waiting = False

    def _fail(self, said: Mapping[str, Any]) -> None:
        self._told()
        detail = said.get("errorDetail") or {}
        message = str(detail.get("message") or said.get("error") or "unknown error").strip()
        code = detail.get("code")
        if code is None and (found := _CODE.search(message)):
            code = int(found[1])
        self._log(message + "\n")
        if self._rest.strip():
            self._lines.append(self._rest)
        step = (
            f"step {self._step.number}/{self._step.total}: {self._step.text}" if self._step else ""
        )
        self.failure = Failure(step, code, message, tuple(self._lines))


class RawJson:
    """Takes bytes of `--progress=rawjson`: objects on one line or many, and text at the end."""

    def __init__(self, tell: Callable[[Step], None], log: Callable[[str], None]) -> None:
        self._tell = tell
        self._log = log
        self._decoder = json.JSONDecoder()
        self._letters = codecs.getincrementaldecoder("utf-8")("replace")
        self._buffer = ""
        self._names: dict[str, str] = {}
        self._told: set[tuple[str, bool]] = set()
        self._lines: dict[str, deque[str]] = {}
        self._partial: dict[str, str] = {}
        self.text: list[str] = []
        self.failure: Failure | None = None

    def feed(self, data: bytes, *, final: bool = False) -> None:
        """More of it; `final` when no more comes."""
        self._buffer += self._letters.decode(data, final)
        while True:
            self._buffer = self._buffer.lstrip()
            if not self._buffer:
                return
            if not self._buffer.startswith("{"):
                line, end, rest = self._buffer.partition("\n")
                if not end and not final:
                    return
                self._plain(line)
                self._buffer = rest
                continue
            try:
                value, end_at = self._decoder.raw_decode(self._buffer)
            except ValueError:
                if not final:
                    return
                line, _, self._buffer = self._buffer.partition("\n")
                self._plain(line)
                continue
            self._buffer = self._buffer[end_at:]
            if isinstance(value, dict):
                self._take(value)

    def _plain(self, line: str) -> None:
        self.text.append(line.rstrip())
        self._log(line.rstrip() + "\n")

    def _take(self, status: Mapping[str, Any]) -> None:
        for vertex in status.get("vertexes") or ():
            self._vertex(vertex)
        for entry in status.get("logs") or ():
            self._output(entry)
        for warning in status.get("warnings") or ():
            short = warning.get("short")
            if short:
                self._log(f"warning: {base64.b64decode(short).decode('utf-8', 'replace')}\n")

    def _vertex(self, vertex: Mapping[str, Any]) -> None:
        digest, name = str(vertex.get("digest", "")), str(vertex.get("name", ""))
        if name:
            self._names[digest] = name
        name = self._names.get(digest, "")
        cached = bool(vertex.get("cached"))
        begun = _VERTEX.match(name)
        if begun and (cached or vertex.get("started")) and (digest, cached) not in self._told:
            self._told.add((digest, cached))
            self._log(f"{name}{' (cached)' if cached else ''}\n")
            self._tell(Step(int(begun[1]), int(begun[2]), begun[3], cached))
        error = str(vertex.get("error") or "")
        if error and self.failure is None and "context canceled" not in error:
            code = _CODE.search(error)
            lines = [*self._lines.get(digest, ()), *filter(None, [self._partial.get(digest)])]
            self.failure = Failure(
                name, int(code[1]) if code else None, error, tuple(lines[-TAIL:])
            )

    def _output(self, entry: Mapping[str, Any]) -> None:
        digest = str(entry.get("vertex", ""))
        text = base64.b64decode(str(entry.get("data") or "")).decode("utf-8", "replace")
        self._log(_COLOUR.sub("", text))
        *whole, self._partial[digest] = (self._partial.get(digest, "") + text).split("\n")
        kept = self._lines.setdefault(digest, deque(maxlen=TAIL))
        kept.extend(_COLOUR.sub("", line) for line in whole if line.strip())
