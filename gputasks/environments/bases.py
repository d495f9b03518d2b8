"""The Python that an environment is made from: the driver's, a path, or one of a version.

What another Python says about itself is remembered, and so is which one was chosen for a version:
while it is there it stays the choice, whatever an activated environment puts in front of PATH.
"""

from __future__ import annotations

import json
import os
import re
import sys
from typing import TYPE_CHECKING

from gputasks.errors import ConfigError
from gputasks.fingerprint import interpreters
from gputasks.frozen import Frozen, spec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gputasks.fingerprint import Digests

TABLE = "bases"
"""Table of the stat cache: a version, or a path -> [stamp, executable, version, implementation]"""

_ASK = """\
import json, os, sys
print()
print(json.dumps([
    os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable),
    "%d.%d.%d" % sys.version_info[:3],
    sys.implementation.name,
]))
"""
_ASK_TIMEOUT_S = 60.0
_VERSION = re.compile(r"3(\.\d+){0,2}")


@spec
class Base(Frozen):
    """A Python outside of any virtual environment.

    Args:
        executable: absolute, links resolved.
        version: `3.11.7`.
        implementation: `CPython`.

    """

    executable: str
    version: str
    implementation: str


def find(python: str, digests: Digests) -> Base:
    """The Python that a task's `python` names.

    Args:
        python: empty, a version, a path or a program.
        digests: remembers what Pythons said.

    Raises:
        ConfigError: there is none; those that are there are named.

    """
    mine = _driver()
    if not python or _fits(mine.version, python):
        return mine
    if python.replace(".", "").isdigit():
        if not _VERSION.fullmatch(python):
            raise ConfigError(f"`{python}` is no version of Python", hint='e.g. `python="3.11"`')
        return _of_version(python, digests)
    path = interpreters.locate(python, digests.layout.root)
    found = _known(path, digests) or _described(path, digests)
    if found is None:
        raise ConfigError(f"`{python}` is no Python interpreter")
    return found


def _driver() -> Base:
    executable = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
    version = ".".join(str(n) for n in sys.version_info[:3])
    return Base(executable, version, _nice(sys.implementation.name))


def _nice(name: str) -> str:
    return interpreters.NICE.get(name, name)


def _fits(version: str, wanted: str) -> bool:
    """Whether 3.11.7 is a 3.11."""
    return wanted.isascii() and f"{version}.".startswith(f"{wanted}.")


def _of_version(version: str, digests: Digests) -> Base:
    found = _known(version, digests)
    if found is not None and _fits(found.version, version):
        return found
    for path in _candidates(version):
        found = _described(path, digests)
        if found is not None and _fits(found.version, version):
            _remember(version, found, digests)
            return found
    others = {b.version: b.executable for p in _all() if (b := _described(p, digests))}
    mine = _driver()
    others.setdefault(mine.version, mine.executable)
    facts = [f"found: {v} ({p})" for v, p in sorted(others.items(), key=_order)]
    close = max(others, key=lambda v: _order((v, "")))
    raise ConfigError(
        f"there is no Python {version} on PATH",
        facts=facts,
        hint=f'`python="{close.rpartition(".")[0]}"`, or install Python {version}',
    )


def _order(item: tuple[str, str]) -> tuple[int, ...]:
    return tuple(int(n) for n in item[0].split("."))


def _candidates(version: str) -> Iterator[str]:
    """Programs of that name on PATH, then what uv knows of."""
    name = "python" + ".".join(version.split(".")[:2])
    for folder in _path():
        path = os.path.join(folder, name)
        if os.access(path, os.X_OK) and not os.path.isdir(path):
            yield path
    from gputasks.proc import run_text

    said = run_text(["uv", "python", "find", version], timeout_s=_ASK_TIMEOUT_S)
    path = said.out.strip().rpartition("\n")[2]
    if said.returncode == 0 and os.path.isabs(path):
        yield path


def _all() -> Iterator[str]:
    """Every `python3.N` on PATH."""
    for folder in _path():
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            continue
        yield from (os.path.join(folder, n) for n in names if re.fullmatch(r"python3\.\d+", n))


def _path() -> list[str]:
    return [p for p in os.environ.get("PATH", os.defpath).split(os.pathsep) if p]


def _described(path: str, digests: Digests) -> Base | None:
    """What a program says about itself; None when it is no Python, e.g. a shim that starts none."""
    from gputasks.proc import run_text

    done = run_text([path, "-I", "-c", _ASK], timeout_s=_ASK_TIMEOUT_S)
    try:
        executable, version, implementation = json.loads(done.out.strip().rpartition("\n")[2])
    except (ValueError, TypeError):
        return None
    if done.returncode or not os.path.exists(executable):
        return None
    base = Base(executable, version, _nice(implementation))
    if interpreters.stamp(path):
        _remember(path, base, digests)
    return base


def _known(key: str, digests: Digests) -> Base | None:
    """What is remembered of a version or a path, as long as its program is the same."""
    row = digests.cache.get(TABLE, key)
    if not row or interpreters.stamp(row[1]) != row[0]:
        return None
    if os.path.isabs(key) and os.path.realpath(key) != row[4]:
        return None
    return Base(*row[1:4])


def _remember(key: str, base: Base, digests: Digests) -> None:
    stamp = interpreters.stamp(base.executable)
    if stamp:
        real = os.path.realpath(key) if os.path.isabs(key) else ""
        digests.cache.put(
            TABLE, key, [stamp, base.executable, base.version, base.implementation, real]
        )
