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
    from typing import IO, Any, Dict, List, Tuple

MASK = b"***"
PIECE = 1 << 18
HEAD = 4
BEGUN = 8
"""Where a text ends within a form, so many bytes of it are enough to hide them."""


class Redactor:
    """Finds forms by `bytes.find`, one search for each.

    For some dozens of them that is the fastest in Python, whatever the text looks like.
    """

    def __init__(self, forms: Iterable[bytes]) -> None:
        ordered = sorted({form for form in forms if form}, key=len, reverse=True)
        self.longest = max(map(len, ordered), default=0)
        self._forms = tuple((form, _period(form)) for form in ordered)
        # Where none of these stands, there is no form, and no long beginning of one.
        self._signs = tuple({form[:BEGUN] for form in ordered})
        self._by_head: Dict[bytes, List[bytes]] = {}
        for form in ordered:
            self._by_head.setdefault(form[:HEAD], []).append(form)
        self._starts = tuple(
            (n, tuple({form[:n] for form in ordered if len(form) > n}))
            for n in range(HEAD - 1, 0, -1)
        )

    def suspects(self, data: bytes) -> bool:
        """False when there is surely nothing to hide: the answer for most texts."""
        return any(sign in data for sign in self._signs)

    def clean(self, data: bytes) -> bytes:
        """A whole text without its forms; the same object when there is none in it."""
        if not self.suspects(data):
            return data
        cleaned = Stream(self).feed(data, last=True)
        return data if cleaned == data else cleaned

    def text(self, text: str) -> str:
        """The same for a text."""
        data = text.encode("utf-8", "surrogatepass")
        cleaned = self.clean(data)
        return text if cleaned is data else cleaned.decode("utf-8", "replace")

    def value(self, value: Any) -> Any:
        """The same for every text in a JSON value.  Numbers stay: they are ours, or a chance."""
        texts = "\0".join(_texts(value)).encode("utf-8", "surrogatepass")
        return self._value(value) if self.suspects(texts) else value

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self._value(k): self._value(v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._value(v) for v in value]
        return value

    def spans(self, data: bytes) -> List[Tuple[int, int]]:
        """Where forms stand, overlapping ones included."""
        found = []
        for form, period in self._forms:
            at = data.find(form)
            while at >= 0:
                found.append((at, at + len(form)))
                at = data.find(form, at + period)
        return found

    def tail(self, data: bytes) -> int:
        """Where the first form begins that may go on behind the end; the end if none does."""
        end = len(data)
        window = data[max(0, end - self.longest + 1) :]
        found = [
            _begins(window, form)
            for head, forms in self._by_head.items()
            if head in window
            for form in forms
        ]
        first = end - len(window) + min(found, default=len(window))
        if first < end:
            return first
        return next((end - n for n, starts in self._starts if data.endswith(starts)), end)


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
    """Where the end of a text is the beginning of a form, of at least `HEAD` bytes."""
    at = data.find(form[:HEAD], max(0, len(data) - len(form) + 1))
    while at >= 0:
        if form.startswith(data[at:]):
            return at
        at = data.find(form[:HEAD], at + 1)
    return len(data)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield str(key)
            yield from _texts(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _texts(one)


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
    with open(path, "rb") as source:
        if not _concerns(path, source, redactor):
            return
        source.seek(0)
        temporary = "%s.%d.clean" % (path, os.getpid())
        try:
            with open(temporary, "wb") as target:
                state = os.fstat(source.fileno())
                os.fchmod(target.fileno(), state.st_mode & 0o777)
                target.writelines(_cleaned(path, source, redactor))
            os.utime(temporary, ns=(state.st_atime_ns, state.st_mtime_ns))
            os.rename(temporary, path)
        except BaseException:
            try:
                os.unlink(temporary)
            except OSError:
                pass
            raise


def _concerns(path: str, source: IO[bytes], redactor: Redactor) -> bool:
    """Whether anything is to be hidden in a file.  One that is no text would be broken by it."""
    if path.endswith((".json", ".jsonl")):
        return any(_clean_json(part, redactor) is not part for part in _parts(path, source))
    before = b""
    for number, piece in enumerate(_pieces(source)):
        if number == 0 and b"\0" in piece[:8192]:
            return False
        data = before + piece
        if redactor.spans(data):
            return True
        before = data[-redactor.longest :]
    return redactor.clean(before) is not before


def _cleaned(path: str, source: IO[bytes], redactor: Redactor) -> Iterator[bytes]:
    if path.endswith((".json", ".jsonl")):
        for part in _parts(path, source):
            yield _clean_json(part, redactor)
        return
    stream = Stream(redactor)
    for piece in _pieces(source):
        yield stream.feed(piece)
    yield stream.feed(b"", last=True)


def _parts(path: str, source: IO[bytes]) -> Iterator[bytes]:
    """What is one JSON value: the whole file, or a line of it."""
    return iter([source.read()]) if path.endswith(".json") else iter(source)


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    piece = file.read(PIECE)
    while piece:
        yield piece
        piece = file.read(PIECE)


def _clean_json(data: bytes, redactor: Redactor) -> bytes:
    """Only the texts in it, however they are spelt; a step number may look like a secret."""
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
