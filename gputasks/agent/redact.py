"""Writes `***` for what must not be seen, in bytes that come in pieces, in texts and in files.

Standard library, Python 3.8 or later: the guard uses it beside the workers, where gputasks need not
be installed, and the driver for what it writes itself, so that there is one way to do it.

It is told *forms*, the byte strings in which a value may appear, and knows nothing of their origin.
"""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any, List, Tuple

MASK = b"***"
PIECE = 1 << 18
BEGUN = 8
"""Where a text ends within a form, so many bytes of it are enough to hide them."""


class Redactor:
    """Finds forms by `bytes.find`, one search for each.

    For some dozens of them that is the fastest in Python, whatever the text looks like.
    """

    def __init__(self, forms: Iterable[bytes]) -> None:
        ordered = sorted({form for form in forms if form}, key=len, reverse=True)
        self.forms = tuple((form, _period(form)) for form in ordered)
        self.longest = max(map(len, ordered), default=0)

    def clean(self, data: bytes) -> bytes:
        """A whole text without its forms; the same object when there is none in it."""
        if len(data) - self.tail(data) < BEGUN and not any(form in data for form, _ in self.forms):
            return data
        return Stream(self).feed(data, last=True)

    def text(self, text: str) -> str:
        """The same for a text."""
        data = text.encode("utf-8", "surrogatepass")
        cleaned = self.clean(data)
        return text if cleaned is data else cleaned.decode("utf-8", "replace")

    def value(self, value: Any) -> Any:
        """The same for every text in a JSON value.  Numbers stay: they are ours, or a chance."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.value(k): self.value(v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(v) for v in value]
        return value

    def spans(self, data: bytes) -> List[Tuple[int, int]]:
        """Where forms stand, overlapping ones included."""
        found = []
        for form, period in self.forms:
            at = data.find(form)
            while at >= 0:
                found.append((at, at + len(form)))
                at = data.find(form, at + period)
        return found

    def tail(self, data: bytes) -> int:
        """Where the first form begins that may go on behind the end; the end if none does."""
        return min((_begins(data, form) for form, _ in self.forms), default=len(data))


class Stream:
    """A text that comes in pieces.  Only what may be the beginning of a form is kept back."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._kept = b""
        self._masked = 0  # so many bytes of what is kept belong to a form that is written as ***

    def feed(self, piece: bytes, *, last: bool = False) -> bytes:
        """What may be written now; with `last` all of it."""
        data = self._kept + piece
        end = self._redactor.tail(data)
        spans = self._redactor.spans(data)
        if last:
            if len(data) - end >= BEGUN:
                spans.append((end, len(data)))
            end = len(data)
        out: List[bytes] = []
        at = self._masked
        for start, stop in sorted(spans):
            if start >= end:
                break
            if start >= at:
                out += [data[at:start], MASK]
            at = max(at, stop)
        if at < end:
            out.append(data[at:end])
        self._kept = data[end:]
        self._masked = max(0, at - end)
        return b"".join(out)


def _period(form: bytes) -> int:
    """How far behind one appearance of a form the next can begin: `abab` may follow 2 later."""
    return next((n for n in range(1, len(form)) if form.startswith(form[n:])), len(form))


def _begins(data: bytes, form: bytes) -> int:
    """Where the end of a text is the beginning of a form."""
    head = form[:4]
    at = data.find(head, max(0, len(data) - len(form) + 1))
    while at >= 0:
        if form.startswith(data[at:]):
            return at
        at = data.find(head, at + 1)
    for n in (3, 2, 1):
        if n < len(form) and data.endswith(form[:n]):
            return len(data) - n
    return len(data)


def clean_folder(folder: str, redactor: Redactor, *, without: Sequence[str] = ()) -> None:
    """Clean the text files of an attempt that has ended: what scripts, and torch, wrote themselves.

    Args:
        folder: everything below it.
        redactor: with what.
        without: files and folders below it that are clean, or that somebody still reads.

    """
    for base, folders, names in os.walk(folder):
        folders[:] = [f for f in folders if os.path.join(base, f) not in without]
        for name in names:
            path = os.path.join(base, name)
            try:
                if path not in without and os.path.isfile(path) and not os.path.islink(path):
                    _clean_file(path, redactor)
            except OSError:
                pass  # a full disk: the others may be shorter afterwards


def _clean_file(path: str, redactor: Redactor) -> None:
    if not _concerns(path, redactor):
        return
    temporary = "%s.%d.clean" % (path, os.getpid())
    try:
        with open(path, "rb") as source, open(temporary, "wb") as target:
            os.fchmod(target.fileno(), os.fstat(source.fileno()).st_mode & 0o777)
            if path.endswith(".json"):
                target.write(_clean_json(source.read(), redactor))
            elif path.endswith(".jsonl"):
                target.writelines(_clean_json(line, redactor) for line in source)
            else:
                stream = Stream(redactor)
                target.writelines(map(stream.feed, _pieces(source)))
                target.write(stream.feed(b"", last=True))
        os.rename(temporary, path)
    except BaseException:
        try:
            os.unlink(temporary)
        except OSError:
            pass
        raise


def _concerns(path: str, redactor: Redactor) -> bool:
    """A text file with one of the forms in it; JSON may spell it in other ways, and is small."""
    if path.endswith((".json", ".jsonl")):
        return True
    before = b""
    with open(path, "rb") as file:
        for piece in _pieces(file):
            if not before and b"\0" in piece[:8192]:
                return False
            data = before + piece
            if redactor.spans(data):
                return True
            before = data[-redactor.longest :]
    return redactor.clean(before) is not before


def _pieces(file: Any) -> Iterator[bytes]:
    piece = file.read(PIECE)
    while piece:
        yield piece
        piece = file.read(PIECE)


def _clean_json(data: bytes, redactor: Redactor) -> bytes:
    """Only the texts in it: a step number that looks like a secret does not end the file."""
    try:
        value = json.loads(data.decode("utf-8"))
    except ValueError:
        return redactor.clean(data)
    cleaned = redactor.value(value)
    if cleaned == value:
        return data
    one_line = b"\n" not in data.rstrip()
    text = json.dumps(cleaned, separators=(",", ":")) if one_line else json.dumps(cleaned, indent=1)
    return text.encode() + data[len(data.rstrip()) :]
