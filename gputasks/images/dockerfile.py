"""What a Dockerfile says: its instructions, the images it starts from, the files it takes.

Not a second parser of Docker's: only as much as decides which files of the context can reach the
image, what it is built upon, and which features the builder must have.  Where that cannot be told,
the answer is "everything".
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

# Compiled when they are needed: most Dockerfiles need none, and each costs a no-op half a
# millisecond.
_DIRECTIVE = r"(?i)#\s*(syntax|escape|check)\s*=\s*(.+?)\s*\Z"
_HEREDOC = r"""<<-?\s*(["']?)([A-Za-z_][A-Za-z0-9_.]*)\1"""
_FLAG = r"""(--[\w-]+(?:=(?:"[^"]*"|\S+))?)(?:\s+|\Z)"""
_VARIABLE = r"\$(?:(\w+)|\{(\w+)(?:(:?[-+])([^}]*))?\})"


class Instruction(NamedTuple):
    """One instruction: its first line, the word in capitals, flags, and the rest of it."""

    line: int
    word: str
    flags: tuple[str, ...]
    rest: str
    heredoc: bool


class Base(NamedTuple):
    """An image that a Dockerfile builds upon."""

    line: int
    ref: str


class Dockerfile(NamedTuple):
    """What was found.

    Args:
        bases: images that must be there, each once.
        sources: paths and patterns of the context that instructions take; None when that may be
            anything.
        needs: features that not every builder has, by the line that first needs each.

    """

    bases: tuple[Base, ...]
    sources: tuple[str, ...] | None
    needs: Mapping[str, int]


def read(text: str, build_args: Mapping[str, str]) -> Dockerfile:
    """Look through the text of a Dockerfile."""
    instructions, syntax = instructions_of(text)
    needs: dict[str, int] = {}
    if syntax:
        needs["# syntax="] = 1
    for each in instructions:
        for need in _needs(each):
            needs.setdefault(need, each.line)
    arguments = dict(_global_arguments(instructions, build_args))
    sources = _sources(instructions)
    return Dockerfile(tuple(_bases(instructions, arguments)), None if syntax else sources, needs)


def _directive(line: str) -> re.Match[str] | None:
    return re.match(_DIRECTIVE, line) if line.startswith("#") else None


def instructions_of(text: str) -> tuple[list[Instruction], str]:
    """The instructions in order, and what `# syntax=` names."""
    lines = text.removeprefix("\ufeff").splitlines()
    syntax, escape = "", "\\"
    number = 0
    while number < len(lines) and (found := _directive(lines[number].strip())):
        if found[1].lower() == "syntax":
            syntax = found[2]
        elif found[1].lower() == "escape":
            escape = found[2]
        number += 1
    made = []
    while number < len(lines):
        start = number + 1
        logical = ""
        while number < len(lines):
            line = lines[number].strip()
            number += 1
            if line.startswith("#") or (logical and not line):
                continue
            if line.endswith(escape):
                logical += line[: -len(escape)]
                continue
            logical += line
            break
        if not logical.strip():
            continue
        word, _, rest = logical.strip().partition(" ")
        word, rest = word.upper(), rest.strip()
        heredocs = False
        takes = word in ("RUN", "COPY", "ADD") and "<<" in rest
        for found in re.finditer(_HEREDOC, rest) if takes else ():
            # `1<<N` in a shell looks alike: only a line with the word alone makes it one.
            for end in range(number, len(lines)):
                if lines[end].strip() == found[2]:
                    heredocs, number = True, end + 1
                    break
        flags = []
        while rest.startswith("--") and (found := re.match(_FLAG, rest)):
            flags.append(found[1])
            rest = rest[found.end() :]
        made.append(Instruction(start, word, tuple(flags), rest, heredocs))
    return made, syntax


def _needs(each: Instruction) -> Iterator[str]:
    if each.heredoc:
        yield "heredocs"
    for flag in each.flags:
        name = flag.partition("=")[0]
        if each.word == "RUN" and name == "--mount":
            yield "RUN --mount"
        elif each.word == "RUN" and name in ("--network", "--security", "--device"):
            yield f"RUN {name}"
        elif each.word in ("COPY", "ADD") and name not in ("--from", "--chown"):
            yield f"{each.word} {name}"


def _global_arguments(
    instructions: Iterable[Instruction], build_args: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Arguments that `FROM` lines see: those before the first one."""
    for each in instructions:
        if each.word == "FROM":
            return
        if each.word == "ARG":
            for word in _words(each.rest):
                name, _, value = word.partition("=")
                yield name, build_args.get(name, value)


def _bases(instructions: Iterable[Instruction], arguments: Mapping[str, str]) -> Iterator[Base]:
    stages: set[str] = set()
    seen: set[str] = set()
    count = 0
    for each in instructions:
        ref = ""
        if each.word == "FROM":
            words = each.rest.split()
            ref = expanded(words[0], arguments) if words else ""
            name = words[2].lower() if len(words) > 2 and words[1].upper() == "AS" else ""
            stages_before = set(stages)
            if name:
                stages.add(name)
            stages.add(str(count))
            count += 1
            if ref.lower() in stages_before:
                continue
        elif each.word in ("COPY", "RUN"):
            ref = expanded(_from_flag(each), arguments)
            if ref.lower() in stages:
                continue
        if ref and ref != "scratch" and ref not in seen:
            seen.add(ref)
            yield Base(each.line, ref)


def _from_flag(each: Instruction) -> str:
    """The image or stage of `--from=`, or of `from=` in a mount."""
    for flag in each.flags:
        name, _, value = flag.partition("=")
        if name == "--from":
            return value.strip('"')
        if name == "--mount":
            for part in value.strip('"').split(","):
                key, _, inner = part.partition("=")
                if key == "from":
                    return inner
    return ""


def expanded(text: str, values: Mapping[str, str]) -> str:
    """A text with its variables replaced; one without a value stays as it is written."""

    def value(match: re.Match[str]) -> str:
        name, sign, other = match[1] or match[2], match[3] or "", match[4] or ""
        found = values.get(name)
        if sign.endswith("+"):
            return other if found else ""
        if sign.endswith("-"):
            return found or other
        return match[0] if found is None else found

    return re.sub(_VARIABLE, value, text) if "$" in text else text


def _sources(instructions: Iterable[Instruction]) -> tuple[str, ...] | None:
    found: dict[str, None] = {}
    for each in instructions:
        if each.word in ("COPY", "ADD"):
            if _from_flag(each):
                continue
            words = _words(each.rest)
            for word in words[:-1]:
                if word.startswith("<<"):
                    continue
                if each.word == "ADD" and re.match(r"(https?|git|ssh)://|git@", word):
                    continue
                if "$" in word:
                    return None
                found[word] = None
        elif each.word == "RUN":
            for flag in each.flags:
                if flag.startswith("--mount=") and not _from_flag(each):
                    parts = dict(p.partition("=")[::2] for p in flag[8:].strip('"').split(","))
                    if parts.get("type", "bind") == "bind":
                        source = parts.get("source", parts.get("src", "."))
                        if "$" in source:
                            return None
                        found[source] = None
        elif each.word == "ONBUILD" and each.rest.split()[:1] != ["RUN"]:
            continue
    return tuple(found)


def _words(rest: str) -> list[str]:
    """The words of an instruction: a JSON list, or as a shell splits them."""
    if rest.startswith("["):
        try:
            words = json.loads(rest)
        except ValueError:
            words = None
        if isinstance(words, list):
            return [str(w) for w in words]
    if not any(c in rest for c in "\"'\\"):
        return rest.split()
    import shlex

    try:
        return shlex.split(rest)
    except ValueError:
        return rest.split()
