"""Why a task must run, as data: one cause per difference, old and new."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, TypedDict

from gputasks.fingerprint import diff

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from gputasks.layout import Layout
    from gputasks.receipts.inputs import Inputs

ABSENT = object()
_NAME = re.compile(r"(-c )?[A-Za-z0-9./-]*")


class Cause(TypedDict):
    """One reason: `kind` is a fixed word, `text` is for people, `old` and `new` are JSON values."""

    kind: str
    name: str
    old: Any
    new: Any
    text: str


def cause(kind: str, name: str, text: str, old: Any = None, new: Any = None) -> Cause:
    """Shorthand."""
    return {"kind": kind, "name": name, "old": old, "new": new, "text": text}


def compare(
    old: Inputs, new: Inputs, layout: Layout, *, dropped: Collection[str] = ()
) -> list[Cause]:
    """Every difference between two fingerprints, most telling first.

    Args:
        old: of the last finished run.
        new: of now.
        layout: where manifests lie, to tell which file of a folder changed.
        dropped: params that the command line gave then and does not give now.

    """
    if old.get("version") != new["version"]:
        return [cause("version", "receipt", "the receipt is of another version of gputasks")]
    causes = []
    if old["smoke"] != new["smoke"]:
        text = "smoke run" if new["smoke"] else "the last run was a smoke run"
        causes.append(cause("smoke", "smoke", text, old["smoke"], new["smoke"]))
    for each in _mapping("param", "", old["params"], new["params"]):
        if each["name"] in dropped:
            each["text"] += " (option not given)"
        causes.append(each)
    if old["params_style"] != new["params_style"]:
        causes.append(
            _value("params_style", "params_style", old["params_style"], new["params_style"])
        )
    for key in ("argv", "args"):
        if old[key] != new[key]:
            text = f"command changed: {_words(old[key], new[key])}"
            causes.append(cause(key, key, text, old[key], new[key]))
    changed = [key for key in ("shell", "cwd") if old[key] != new[key]]
    causes += [_value(key, key, old[key], new[key]) for key in changed]
    causes += _paths("code", old["code"], new["code"], layout)
    causes += _paths("file", old["files"], new["files"], layout)
    causes += _mapping("env", "env ", old["env"], new["env"])
    causes += _mapping("workers", "", old["workers"], new["workers"])
    causes += _mapping("artifact", "artifact ", old["artifacts"], new["artifacts"])
    if old["python"] != new["python"]:
        causes.append(_value("python", "python", old["python"], new["python"]))
    return [*causes, *_environment(old, new, layout)]


def _environment(old: Inputs, new: Inputs, layout: Layout) -> Iterator[Cause]:
    """Requirements and packages.

    A receipt of an earlier version has no requirements.  While the environment is not there, its
    packages are unknown; those of the receipt are believed if no requirement leaves a choice.
    """
    before, after = old.get("requirements") or {}, new.get("requirements") or {}
    found = [*_requirements(before.get("lines") or [], after.get("lines") or [])]
    found += _paths("requirement", before.get("local") or {}, after.get("local") or {}, layout)
    yield from found
    if new["packages"] is not None:
        yield from _mapping("package", "package ", old["packages"], new["packages"], bare=True)
    elif not found and not after.get("pinned"):
        yield cause("environment", "", "its environment is not built here yet")


def _requirements(old: list[str], new: list[str]) -> Iterator[Cause]:
    """Lines that differ, those of one package together."""
    gone = {_about(line): line for line in old if line not in new}
    come = {_about(line): line for line in new if line not in old}
    for name in sorted({*gone, *come}):
        before, after = gone.get(name), come.get(name)
        if before is None:
            text = f"requirements changed: {_show(after, bare=True)} added"
        elif after is None:
            text = f"requirements changed: {_show(before, bare=True)} removed"
        else:
            text = f"requirements changed: {_show(before, bare=True)} -> {_show(after, bare=True)}"
        yield cause("requirement", name, text, before, after)


def _about(line: str) -> str:
    """The package, or the option, that a line of requirements is about, and its marker."""
    head, _, marker = line.partition("; ")
    found = _NAME.match(head)
    return f"{found[0] if found else head}{marker}"


def _value(kind: str, name: str, old: Any, new: Any) -> Cause:
    return cause(kind, name, f"{name}: {_show(old)} -> {_show(new)}", old, new)


def _mapping(
    kind: str, prefix: str, old: Mapping[str, Any], new: Mapping[str, Any], *, bare: bool = False
) -> Iterator[Cause]:
    for name in sorted({*old, *new}):
        before, after = old.get(name, ABSENT), new.get(name, ABSENT)
        # 1, 1.0 and True are equal in Python and different to a script.
        if before is ABSENT:
            text = f"{prefix}{name} added: {_show(after, bare=bare)}"
            yield cause(kind, name, text, None, after)
        elif after is ABSENT:
            text = f"{prefix}{name} removed, was {_show(before, bare=bare)}"
            yield cause(kind, name, text, before, None)
        elif json.dumps(before, sort_keys=True) != json.dumps(after, sort_keys=True):
            text = f"{prefix}{name}: {_show(before, bare=bare)} -> {_show(after, bare=bare)}"
            yield cause(kind, name, text, before, after)


def _show(value: Any, *, bare: bool = False) -> str:
    text = str(value) if bare else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."


def _words(old: list[str], new: list[str]) -> str:
    """The part of a command line in which two differ, with the flag before it."""
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    flag = f"{old[start - 1]} " if start and old[start - 1].startswith("-") else ""
    before = " ".join(old[start : len(old) - end]) or "(nothing)"
    after = " ".join(new[start : len(new) - end]) or "(nothing)"
    return f"{flag}{_show(before, bare=True)} -> {_show(after, bare=True)}"


def _paths(
    kind: str, old: Mapping[str, str], new: Mapping[str, str], layout: Layout
) -> Iterator[Cause]:
    for path in sorted({*old, *new}):
        before, after = old.get(path), new.get(path)
        if before == after:
            continue
        if before is None:
            yield cause(kind, path, f"{path} added", None, after)
        elif after is None:
            yield cause(kind, path, f"{path} removed", before, None)
        elif before.startswith("tree:") and after.startswith("tree:"):
            lines = diff(before, after, layout=layout, prefix=path)
            text = ", ".join(lines) if lines else f"{path} changed"
            yield cause(kind, path, text, before, after)
        else:
            yield cause(kind, path, f"{path} changed", before, after)
