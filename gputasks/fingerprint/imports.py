"""The local modules that a script imports, found without running it.

A module is local when a file for it lies in the script's folder or in one of the given roots, so
packages of the interpreter are local only when a local file shadows them.  Followed: `import` and
`from` anywhere in a file, `importlib.import_module("literal")`, the `__init__.py` of packages and
what their `__all__` names.  Not followed: imports under `if TYPE_CHECKING:`, which never happen;
names that are computed; and gputasks itself, whose update changes no training.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gputasks.errors import ConfigError, MachineError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gputasks.fingerprint.digests import Digests

IMPORTS = "imports"
"""Table of the stat cache: path of a module -> [its digest, the names that it imports]"""


def local_imports(
    script: str,
    *,
    roots: Iterable[str] = (),
    digests: Digests | None = None,
    max_files: int = 2000,
    must_parse: bool = True,
) -> tuple[str, ...]:
    """Paths of the local modules that a script imports, directly or not, sorted.

    Args:
        script: path of the script; relative paths are relative to the root of `digests`, or to
            the working folder.
        roots: further folders to look in after the script's own: the project, PYTHONPATH, folders
            of editable installations.
        digests: remembers what unchanged files import, so that nothing is parsed twice.
        max_files: a bound that no training reaches.
        must_parse: False when the script is for an interpreter with another syntax; imports are
            then looked for line by line where parsing fails.  Modules are always treated so.

    Returns:
        Paths below the root as relative ones.  Nothing for a script that is not there.

    Raises:
        ConfigError: the script does not parse, or too many files.
        MachineError: a file cannot be read.
    """
    finder = _Finder(digests)
    script = finder.relative(script)
    search = list(dict.fromkeys([os.path.dirname(script), *(finder.relative(r) for r in roots)]))
    found = {script}
    queue = [script]
    while queue:
        path = queue.pop()
        for name in finder.names(path, strict=must_parse and path == script):
            for module in finder.resolve(name, path, search):
                if module not in found:
                    found.add(module)
                    queue.append(module)
        if len(found) > max_files:
            raise ConfigError(f"`{script}` imports more than {max_files} local modules")
    return tuple(sorted(found - {script}))


class _Finder:
    """Looks modules up in folders; each folder is listed once."""

    def __init__(self, digests: Digests | None) -> None:
        self.digests = digests
        self.root = "" if digests is None or digests.layout.root == "." else digests.layout.root
        self._listed: dict[str, dict[str, str] | None] = {}

    def relative(self, path: str) -> str:
        """A path below the root as a relative one, normal, the root itself as an empty one."""
        path = os.path.normpath(path)
        if self.root and os.path.isabs(path):
            below = os.path.relpath(path, self.root)
            if below != ".." and not below.startswith("../"):
                path = below
        return "" if path == "." else path

    def names(self, path: str, *, strict: bool) -> list[str]:
        """Dotted names that a file imports; a leading dot for each level of a relative import."""
        if not path.endswith(".py"):
            return []
        try:
            if self.digests is None:
                return self._parse(path, strict)
            digest = self.digests.path(path)
            row = self.digests.cache.get(IMPORTS, path)
            if not row or row[0] != digest:
                row = [digest, " ".join(self._parse(path, strict))]
                self.digests.cache.put(IMPORTS, path, row)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise MachineError(f"`{path}` cannot be read: {error.strerror}") from error
        return str(row[1]).split()

    def _parse(self, path: str, strict: bool) -> list[str]:
        from gputasks.fingerprint.parsing import imported_names

        with open(os.path.join(self.root, path), "rb") as file:
            return imported_names(file.read(), path, strict=strict)

    def resolve(self, name: str, importer: str, search: list[str]) -> list[str]:
        """Files that importing a name loads from a local folder: packages first."""
        bare = name.lstrip(".")
        parts = bare.split(".") if bare else []
        if parts and parts[0] == "gputasks":
            return []
        levels = len(name) - len(bare)
        if levels:
            folder = os.path.dirname(importer)
            for _ in range(levels - 1):
                folder = os.path.dirname(folder)
            return list(self._descend(folder, parts))
        for folder in search:
            files = list(self._descend(folder, parts))
            if files:
                return files
        return []

    def _descend(self, folder: str, parts: list[str]) -> Iterator[str]:
        """Follow a dotted name as the import system does: package, extension, module, namespace."""
        for part in parts:
            modules = self._modules(folder)
            if modules is None:
                return
            inner = os.path.join(folder, part)
            inside = self._modules(inner) if part in modules else None
            if inside is not None and "__init__" in inside:
                yield os.path.join(inner, inside["__init__"])
            elif modules.get(part):
                yield os.path.join(folder, modules[part])
                return
            folder = inner

    def _modules(self, folder: str) -> dict[str, str] | None:
        """File by module of a folder, "" for what may be a folder itself; None for no folder."""
        if folder in self._listed:
            return self._listed[folder]
        modules: dict[str, str] | None = {}
        try:
            names = os.listdir(os.path.join(self.root, folder) or ".")
        except OSError:
            names, modules = [], None
        if modules is not None:
            for name in names:
                stem, dot, _ = name.partition(".")
                if not dot:
                    modules.setdefault(name, "")
                elif name.endswith(".so") or (name == f"{stem}.py" and not modules.get(stem)):
                    modules[stem] = name
        self._listed[folder] = modules
        return modules
