"""The interpreter of the workers: which Python, and which packages at which versions.

Packages are read off the names of `*.dist-info` and `*.egg-info` in its site folders; nothing of
them is opened.  Left out is what no training can depend on, see `LEFT_OUT`.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from gputasks.errors import ConfigError

if TYPE_CHECKING:
    from gputasks.fingerprint.digests import Digests

# fmt: off
LEFT_OUT = frozenset((
    # What drives runs: an update of gputasks, or of what is there for its sake, must train nothing.
    "blake3", "docker", "doit", "gputasks", "markdown-it-py", "mdurl", "pygments", "rich", "tomli",
    # What installs packages.
    "conda", "hatch", "hatchling", "pip", "pip-tools", "pipx", "poetry", "poetry-core",
    "setuptools", "uv", "virtualenv", "wheel",
    # What only looks at code.
    "black", "coverage", "flake8", "isort", "mypy", "mypy-extensions", "nox", "pre-commit",
    "pylint", "pyright", "pytest", "ruff", "tox",
))
# fmt: on
"""Packages that are no inputs, by their normal names."""

PYTHONS = "pythons"
"""Table of the stat cache: path of an interpreter -> [stamp, what it said about itself]"""

_ASK = """\
import json, os, sys
print()
print(json.dumps({
    "version": "%d.%d.%d" % sys.version_info[:3],
    "implementation": sys.implementation.name,
    "path": [p for p in sys.path if os.path.isdir(p)],
}))
"""
_ASK_TIMEOUT_S = 60.0
_SITES = ("/site-packages", "/dist-packages")
NICE = {"cpython": "CPython", "pypy": "PyPy"}

_asked: dict[str, tuple[str, dict[str, Any]]] = {}
_scanned: dict[str, tuple[int, dict[str, str], tuple[str, ...]]] = {}


class Interpreter(NamedTuple):
    """A Python.

    Args:
        executable: absolute path; not resolved, since the link in a virtual environment is what
            makes it one.
        version: `3.11.7`.
        implementation: `CPython`.
        packages: normal name -> version.
        site_dirs: where they lie.
        source_dirs: folders that `.pth` files add: editable installations, whose code may change
            while their version stays; roots for `local_imports`.
    """

    executable: str
    version: str
    implementation: str
    packages: dict[str, str]
    site_dirs: tuple[str, ...]
    source_dirs: tuple[str, ...]


def interpreter(python: str = "", *, digests: Digests | None = None) -> Interpreter:
    """Look at an interpreter.

    Args:
        python: a path (relative to the root of `digests`, or to the working folder), a name to
            look up in PATH, or nothing for the one that runs this.
        digests: remembers what another interpreter said about itself.

    Raises:
        ConfigError: there is none, or it is no Python.
    """
    root = digests.layout.root if digests is not None else "."
    executable = locate(python, root) if python else sys.executable
    if executable == sys.executable:
        name = sys.implementation.name
        version = ".".join([str(n) for n in sys.version_info[:3]])
        path = sys.path
    else:
        said = _ask(executable, python, root, digests)
        name, version, path = said["implementation"], said["version"], said["path"]
    sites = tuple(dict.fromkeys([p for p in path if p.endswith(_SITES)]))
    return _described(executable, version, name, sites)


def virtual(folder: str, version: str, implementation: str) -> Interpreter:
    """The interpreter of a virtual environment of ours, which need not be asked.

    Args:
        folder: where it lies, absolute; without packages as long as it is not there.
        version: of the Python it was made from.
        implementation: likewise.
    """
    lib = os.path.join(folder, "lib")
    names = sorted(os.listdir(lib)) if os.path.isdir(lib) else []
    sites = [os.path.join(lib, n, "site-packages") for n in names]
    executable = os.path.join(folder, "bin", "python")
    return _described(
        executable, version, implementation, tuple(s for s in sites if os.path.isdir(s))
    )


def _described(executable: str, version: str, name: str, sites: tuple[str, ...]) -> Interpreter:
    packages: dict[str, str] = {}
    sources: list[str] = []
    for site in sites:
        found, added = _scan(site)
        for package, number in found.items():
            packages.setdefault(package, number)
        sources.extend(added)
    return Interpreter(
        executable, version, NICE.get(name, name), packages, sites, tuple(dict.fromkeys(sources))
    )


def locate(python: str, root: str) -> str:
    """Absolute path of an interpreter.

    Raises:
        ConfigError: there is none, or it cannot be executed.
    """
    if os.sep in python:
        found = os.path.abspath(os.path.join(root, os.path.expanduser(python)))
    else:
        folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
        paths = [os.path.join(os.path.abspath(f or "."), python) for f in folders]
        found = next((p for p in paths if os.access(p, os.X_OK) and not os.path.isdir(p)), "")
    if not found or not os.path.exists(found):
        raise ConfigError(f"interpreter `{python}` is not there")
    if os.path.isdir(found) or not os.access(found, os.X_OK):
        raise ConfigError(f"interpreter `{python}` cannot be executed")
    return found


def _ask(executable: str, python: str, root: str, digests: Digests | None) -> dict[str, Any]:
    mark = stamp(executable)
    row = _asked.get(executable)
    if not row and digests is not None:
        row = digests.cache.get(PYTHONS, executable)
    if row and mark and row[0] == mark:
        return row[1]
    from gputasks.proc import run_text

    fault = ConfigError(f"`{python}` is no Python interpreter")
    try:
        done = run_text([executable, "-c", _ASK], timeout_s=_ASK_TIMEOUT_S, cwd=root)
        # The last line: a sitecustomize may print too.
        said: dict[str, Any] = json.loads(done.out.strip().rpartition("\n")[2])
        if done.returncode or not said["version"] or not isinstance(said["path"], list):
            raise fault
    except (OSError, ValueError, KeyError, TypeError):
        raise fault from None
    _asked[executable] = (mark, said)
    if digests is not None and mark:
        digests.cache.put(PYTHONS, executable, [mark, said])
    return said


def stamp(executable: str) -> str:
    """Changes when the interpreter does; empty for a script, which may start any interpreter."""
    real = os.path.realpath(executable)
    try:
        info = os.stat(real)
        with open(real, "rb") as file:
            if file.read(2) == b"#!":
                return ""  # a shim of pyenv or conda: what it starts depends on other files
    except OSError:
        return ""
    mark = f"{real} {info.st_size} {info.st_mtime_ns}"
    try:
        config = os.path.join(os.path.dirname(os.path.dirname(executable)), "pyvenv.cfg")
        return f"{mark} {os.stat(config).st_mtime_ns}"
    except OSError:
        return mark


def _scan(site: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """Packages of one site folder, and the folders that its `.pth` files add.

    Installing, updating and removing a package renames entries here, which dates the folder.
    """
    try:
        dated = os.stat(site).st_mtime_ns
        known = _scanned.get(site)
        if known is not None and known[0] == dated:
            return known[1], known[2]
        names = sorted(os.listdir(site))
    except OSError:
        return {}, ()
    packages: dict[str, str] = {}
    sources: list[str] = []
    for name in names:
        if name.endswith((".dist-info", ".egg-info")) and not name.startswith("~"):
            package, _, version = name.rpartition(".")[0].partition("-")
            package = normal(package)
            if package not in LEFT_OUT:
                packages[package] = version.partition("-py")[0]
        elif name.endswith(".pth"):
            sources.extend(_added_by(site, name))
    _scanned[site] = (dated, packages, tuple(sources))
    return packages, tuple(sources)


def _added_by(site: str, name: str) -> list[str]:
    try:
        with open(os.path.join(site, name), encoding="utf-8", errors="surrogateescape") as file:
            lines = [x.strip() for x in file if not x.startswith(("#", "import ", "import\t"))]
    except OSError:
        return []
    folders = [os.path.join(site, line) for line in lines if line]
    return [f for f in folders if os.path.isdir(f) and not f.startswith(site + os.sep)]


def normal(package: str) -> str:
    """`Foo.Bar_baz` -> `foo-bar-baz`, as PEP 503 has it."""
    words = package.lower().replace("_", "-").replace(".", "-").split("-")
    return "-".join([w for w in words if w])
