"""Patterns of `.dockerignore`, exactly as moby's patternmatcher reads them.

Builders disagree: docker-py folds case and inverts `[^a]`, the classic builder prunes folders in
which BuildKit finds a file that `!` brings back.  One matcher, used for the digest and for what is
sent, leaves no builder anything to decide.  The rules are those of
https://github.com/moby/patternmatcher (Go): `*` and `?` stop at `/`, `**` does not, a pattern also
matches all that lies below what it matches, the last pattern that matches decides.
"""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Seen = tuple[bool, ...]
    """Which patterns matched a folder, so that what lies below need not ask again."""


class BadPatternError(ValueError):
    """A pattern that Go's filepath.Match refuses too."""


class Pattern(NamedTuple):
    """One line: what it matches, and whether it brings back (`!`) instead of leaving out."""

    text: str
    back: bool
    matches: Callable[[str], bool]


def parse(lines: Iterable[str]) -> list[Pattern]:
    """Patterns from the lines of a file or of a list; empty lines are none.

    Raises:
        BadPatternError: naming the pattern.

    """
    found = []
    for line in lines:
        text = line.strip()
        if not text:
            continue
        text = _clean(text)
        back = text.startswith("!")
        if back:
            text = text[1:]
            if not text:
                raise BadPatternError("`!` alone is no pattern")
        if not _is_sound(text):
            raise BadPatternError(f"`{line.strip()}` is no pattern")
        found.append(Pattern(text, back, _matcher(text)))
    return found


def read_lines(data: bytes) -> list[str]:
    """The lines of a `.dockerignore`: no byte order mark, no comments, `/` in front stripped."""
    text = data.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    found = []
    for line in text.split("\n"):
        if line.startswith("#"):  # before it is stripped: ` #x` is a name
            continue
        pattern = line.strip()
        if not pattern:
            continue
        back = pattern.startswith("!")
        if back:
            pattern = pattern[1:].strip()
        if pattern:
            pattern = _clean(pattern)
            if len(pattern) > 1 and pattern.startswith("/"):
                pattern = pattern[1:]
        found.append(f"!{pattern}" if back else pattern)
    return found


def _clean(path: str) -> str:
    """Go's filepath.Clean, which unlike Python's never keeps two leading slashes."""
    cleaned = posixpath.normpath(path)
    return "/" + cleaned.lstrip("/") if cleaned.startswith("//") else cleaned


def _is_sound(pattern: str) -> bool:
    """What `filepath.Match(pattern, ".")` of Go says of the pattern's form."""
    i, end = 0, len(pattern)
    while i < end:
        char = pattern[i]
        if char == "\\":
            i += 1
            if i >= end:
                return False
        elif char == "[":
            i = _class_end(pattern, i + 1)
            if i < 0:
                return False
            continue
        i += 1
    return True


def _class_end(pattern: str, i: int) -> int:
    """Index after a character class that began before `i`, or -1 when it is none."""
    end = len(pattern)
    if i < end and pattern[i] == "^":
        i += 1
    first = True
    while i < end:
        if pattern[i] == "]" and not first:
            return i + 1
        first = False
        i = _one(pattern, i)
        if i < 0 or i >= end:
            return -1
        if pattern[i] == "-":
            i = _one(pattern, i + 1)
            if i < 0:
                return -1
    return -1


def _one(pattern: str, i: int) -> int:
    """Index after one character of a class, or -1."""
    if i >= len(pattern) or pattern[i] in "-]":
        return -1
    if pattern[i] == "\\":
        i += 1
        if i >= len(pattern):
            return -1
    return i + 1


def _matcher(pattern: str) -> Callable[[str], bool]:
    """Comparisons where they suffice, else a regular expression."""
    kind, regex = _regex(pattern)
    if kind == "exact":
        return pattern.__eq__
    if kind == "prefix":
        head = pattern[:-2]
        return lambda path: path.startswith(head)
    if kind == "suffix":
        tail = pattern[2:]
        bare = tail[1:] if tail.startswith("/") else None
        return lambda path: path.endswith(tail) or path == bare
    # Compiled when it is first asked: with patterns of names only, it never is.
    return lambda path: re.match(f"{regex}\\Z", path, re.DOTALL) is not None


def _regex(pattern: str) -> tuple[str, str]:
    """moby's `compile`: how a pattern is to be compared, and it as a regular expression."""
    kind, out = "exact", []
    i, start, end = 0, True, len(pattern)
    while i < end:
        char = pattern[i]
        i += 1
        if char == "*" and i < end and pattern[i] == "*":
            i += 1
            if i < end and pattern[i] == "/":
                i += 1
            if i >= end:
                if kind == "exact":
                    kind = "prefix"
                else:
                    out.append(".*")
                    kind = "regex"
            else:
                out.append("(.*/)?")
                kind = "regex"
            if start:
                kind = "suffix"
        elif char == "*":
            out.append("[^/]*")
            kind = "regex"
        elif char == "?":
            out.append("[^/]")
            kind = "regex"
        elif char == "\\":
            out.append(re.escape(pattern[i]))
            i += 1
            kind = "regex"
        elif char == "[":
            stop = _class_end(pattern, i)
            out.append(_class(pattern[i : stop - 1]))
            i, kind = stop, "regex"
        else:
            out.append(re.escape(char))
        start = False
    return kind, "".join(out)


def _class(inner: str) -> str:
    """A Go character class as one of Python's, where `[` and `&` mean more."""
    negated = inner.startswith("^")
    body = inner[1:] if negated else inner
    safe = re.sub(r"\\(.)|([\[&~|])", lambda m: re.escape(m[1] or m[2]), body, flags=re.DOTALL)
    if safe.startswith("]"):
        safe = "\\" + safe
    return f"[{'^' if negated else ''}{safe}]"


class Matcher:
    """Patterns in order; the last one that matches decides."""

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self.patterns = tuple(patterns)
        self._back = [_literal_folder(p.text) for p in patterns if p.back]
        # Without `!` the order does not matter, and `**/NAME` can be asked of the name alone, all
        # at once: a context of 2,000 files must not cost 2,000 times a dozen questions.
        names = [p.text[3:] for p in patterns if _is_of_names(p)]
        self._names = _any_of(names)
        self._others = tuple(p.matches for p in patterns if not _is_of_names(p))

    def ask(self, path: str, above: Seen = ()) -> tuple[bool, Seen]:
        """Whether a path is left out, and which patterns matched it, for what lies below it.

        Args:
            path: relative to the context, with `/`.
            above: what was said of the folder that it lies in.

        """
        if not self._back:
            return self.plainly(path, path.rpartition("/")[2]), ()
        out = False
        seen = [False] * len(self.patterns)
        for i, pattern in enumerate(self.patterns):
            match = bool(above) and above[i]
            if not match:
                if pattern.back != out:
                    continue
                match = pattern.matches(path)
            seen[i] = match
            if match:
                out = not pattern.back
        return out, tuple(seen)

    @property
    def plain(self) -> bool:
        """True when nothing comes back: what lies below what is left out need not be asked."""
        return not self._back

    def plainly(self, path: str, name: str) -> bool:
        """Whether a path is left out when no `!` is among the patterns; `name` is its last part."""
        if self._names(name):
            return True
        return any(matches(path) for matches in self._others) if self._others else False

    def left_out(self, path: str) -> bool:
        """Whether a path is left out, asked of its folders first."""
        seen: Seen = ()
        out = False
        parts = path.split("/")
        for i in range(len(parts)):
            out, seen = self.ask("/".join(parts[: i + 1]), seen)
            if out and self.plain:
                return True
        return out

    def may_return(self, folder: str) -> bool:
        """Whether a `!` may bring back something below a folder that is left out."""
        below = folder + "/"
        return any(
            not back or back.startswith(below) or below.startswith(back + "/")
            for back in self._back
        )


def _is_of_names(pattern: Pattern) -> bool:
    name = pattern.text[3:]
    return pattern.text.startswith("**/") and bool(name) and "/" not in name and "**" not in name


def _any_of(names: list[str]) -> Callable[[str], bool]:
    """One question for all patterns of names; no regular expression for `NAME`, `*X` and `X*`."""
    exact: list[str] = []
    heads: list[str] = []
    tails: list[str] = []
    others: list[str] = []
    for name in names:
        bare = name.strip("*")
        if any(c in bare for c in "*?[\\"):
            others.append(f"(?:{_regex(name)[1]})\\Z")
        elif bare == name:
            exact.append(name)
        elif name == f"*{bare}":
            tails.append(bare)
        elif name == f"{bare}*":
            heads.append(bare)
        else:
            others.append(f"(?:{_regex(name)[1]})\\Z")
    same, head, tail = frozenset(exact), tuple(heads), tuple(tails)
    other = re.compile("|".join(others), re.DOTALL).match if others else None
    return lambda name: (
        name in same
        or name.endswith(tail)
        or name.startswith(head)
        or (other is not None and other(name) is not None)
    )


def _literal_folder(pattern: str) -> str:
    """The leading part of a pattern that holds no wildcard; empty when it may match anywhere."""
    parts: list[str] = []
    for part in pattern.split("/"):
        if any(c in part for c in "*?[\\"):
            break
        parts.append(part)
    return "/".join(parts)
