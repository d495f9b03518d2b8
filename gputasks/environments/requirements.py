"""The requirements of a task, with all files they name, as what counts and as what to install.

Nested files are read in, so that it does not matter in which file a line stands.  Sources on this
disk (`./pkg`, `-e .`, `./x.whl`) count by content: their version may stay while they change.
"""

from __future__ import annotations

import os
from dataclasses import field
from typing import TYPE_CHECKING, Any

from gputasks.checks.requirements import Line, LineError, parse_line, split_index
from gputasks.errors import ConfigError, raise_all
from gputasks.frozen import Frozen, spec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gputasks.fingerprint import Digests
    from gputasks.specs import Run

BUILD_FILES = ("pyproject.toml", "setup.py", "setup.cfg", "MANIFEST.in", "Cargo.toml")
SOURCES = (".py", ".pyi", ".pyx", ".pxd", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".rs")
"""What counts of a folder to install from.  Data, and what a build leaves there, does not."""

LEFTOVERS = ("build", "dist", "node_modules", "__pycache__")


@spec
class Requirements(Frozen):
    """What a task's environment holds.

    Args:
        lines: in normal form, options first; equal lines give equal environments.
        local: path, as declared -> digest of what is there.
        pinned: every line allows one version only.
        install: the text for the installer, paths absolute, secrets left out.
        constraints: the same of constraints.
        secret_urls: URLs of indexes with references to secrets, as declared.
        editable: absolute folders whose code is used in place.
        missing: files that another task has yet to make.

    """

    lines: tuple[str, ...] = ()
    local: Mapping[str, str] = field(default_factory=dict)
    pinned: bool = True
    install: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    secret_urls: tuple[str, ...] = ()
    editable: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    def as_input(self) -> dict[str, Any]:
        """As a part of the fingerprint."""
        return {"lines": list(self.lines), "local": dict(self.local), "pinned": self.pinned}


def read(run: Run, digests: Digests) -> Requirements:
    """Read the requirements of a run and what they refer to.

    Raises:
        ConfigError: every line that is none, every file that is missing, each with its place.

    """
    reader = _Reader(run, digests)
    for text in run.requirements:
        reader.take(text, place="", folder="", constraint=False)
    raise_all(reader.faults)
    return reader.result()


class _Reader:
    def __init__(self, run: Run, digests: Digests) -> None:
        self.root = os.path.abspath(digests.layout.root)
        self.made = run.file_dep
        self.digests = digests
        self.faults: list[ConfigError] = []
        self.options: list[str] = []
        self.packages: list[Line] = []
        self.constraints: list[Line] = []
        self.install: list[str] = []
        self.secret_urls: list[str] = []
        self.local: dict[str, str] = {}
        self.missing: list[str] = []
        self._seen: set[tuple[str, bool]] = set()

    def take(self, text: str, *, place: str, folder: str, constraint: bool) -> None:
        """Take one line; `folder` is that of the file it stands in."""
        try:
            line = parse_line(text)
        except LineError as error:
            self.faults.append(ConfigError(str(error), place=place, hint=error.hint))
            return
        if line is None:
            return
        if line.kind in ("-r", "-c"):
            path = os.path.normpath(os.path.join(folder, line.value))
            self._file(path, place, constraint=constraint or line.kind == "-c")
        elif line.kind in ("index", "links", "option"):
            self._option(line, folder)
        else:
            self._package(line, place, constraint=constraint)

    def _file(self, path: str, place: str, *, constraint: bool) -> None:
        if (path, constraint) in self._seen:
            return
        self._seen.add((path, constraint))
        try:
            with open(os.path.join(self.root, path), encoding="utf-8-sig") as file:
                text = file.read()
        except (OSError, UnicodeDecodeError) as error:
            if isinstance(error, FileNotFoundError) and path in self.made:
                self.missing.append(path)
                return
            why = getattr(error, "strerror", None) or "it is not UTF-8"
            self.faults.append(
                ConfigError(f"requirements file `{path}` cannot be read: {why}", place=place)
            )
            return
        for number, line in logical_lines(text):
            self.take(
                line,
                place=f"{path}:{number}",
                folder=os.path.dirname(path),
                constraint=constraint,
            )

    def _option(self, line: Line, folder: str) -> None:
        text = line.text
        if text in self.options:
            return
        self.options.append(text)
        if line.kind == "index" and "${secrets." in line.value:
            self.secret_urls.append(line.value)
            text = f"{line.name} {split_index(line.value)[0]}"
        elif line.kind == "links" and "://" not in line.value:
            # As pip has it: beside the file, or else in the folder where it is started.
            beside = os.path.join(self.root, folder, line.value)
            path = beside if os.path.exists(beside) else os.path.join(self.root, line.value)
            text = f"{line.name} {os.path.normpath(path)}"
        self.install.append(text)

    def _package(self, line: Line, place: str, *, constraint: bool) -> None:
        if line.kind == "path":
            full = os.path.normpath(os.path.join(self.root, line.value))
            try:
                self.local[line.value] = self._digest(line, full)
            except OSError as error:
                why = f"`{line.value}` cannot be read: {error.strerror}"
                self.faults.append(ConfigError(why, place=place))
        (self.constraints if constraint else self.packages).append(line)

    def _digest(self, line: Line, full: str) -> str:
        if not os.path.isdir(full):
            return self.digests.path(full)
        from blake3 import blake3

        if line.editable:
            paths: Iterable[str] = [os.path.join(full, name) for name in BUILD_FILES]
        else:
            paths = _sources(full)
        hasher = blake3()
        for path in paths:
            if os.path.isfile(path):
                name = os.path.relpath(path, full)
                hasher.update(os.fsencode(f"{name}\0{self.digests.path(path)}\0"))
        return f"tree:blake3:{hasher.hexdigest()}"

    def result(self) -> Requirements:
        """What was read."""
        fixed = {c.name for c in self.constraints if c.pinned}
        packages = sorted({p.text for p in self.packages})
        limits = sorted({c.text for c in self.constraints})
        return Requirements(
            lines=(*self.options, *(f"-c {c}" for c in limits), *packages),
            local=dict(sorted(self.local.items())),
            pinned=all(p.pinned or p.name in fixed for p in self.packages) and not self.missing,
            install=(*self.install, *self._absolute(self.packages)),
            constraints=tuple(self._absolute(self.constraints)),
            secret_urls=tuple(self.secret_urls),
            editable=tuple(
                os.path.normpath(os.path.join(self.root, p.value))
                for p in self.packages
                if p.editable and p.kind == "path"
            ),
            missing=tuple(self.missing),
        )

    def _absolute(self, lines: Iterable[Line]) -> Iterator[str]:
        for line in dict.fromkeys(lines):
            if line.kind != "path":
                yield line.text
                continue
            full = os.path.normpath(os.path.join(self.root, line.value))
            named, at, _ = line.text.partition(" @ ")
            if at:
                yield f"{named} @ file://{full}{line.tail}"
            else:
                yield f"{'-e ' if line.editable else ''}{full}{line.tail}"


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers; one that ends with a backslash goes on in the next."""
    whole, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        first = first or number
        if line.endswith("\\") and not line.lstrip().startswith("#"):
            whole += line[:-1] + " "
            continue
        yield first, whole + line
        whole, first = "", 0
    if whole:
        yield first, whole


def _sources(folder: str) -> Iterator[str]:
    """Files that decide what a build from this folder gives, in a fixed order."""
    for base, folders, names in os.walk(folder):
        folders[:] = sorted(
            f
            for f in folders
            if f not in LEFTOVERS
            and not f.startswith(".")
            and not f.endswith(".egg-info")
            and not os.path.exists(os.path.join(base, f, "pyvenv.cfg"))
        )
        for name in sorted(names):
            if name in BUILD_FILES or name.endswith(SOURCES):
                yield os.path.join(base, name)
