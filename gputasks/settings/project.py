"""`gt.load`: gputasks.toml, or `[tool.gputasks]` of pyproject.toml, as checked specs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from gputasks.checks.faults import Faults
from gputasks.errors import ConfigError, did_you_mean, nearest
from gputasks.settings.cache import CacheSettings, checked_cache
from gputasks.settings.toml import read_toml

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gputasks.settings.toml import Document
    from gputasks.specs import Image, NodeSpec, Run

T = TypeVar("T")

DEFAULT = "gputasks.toml"
PYPROJECT = "pyproject.toml"
INSIDE = ("tool", "gputasks")
TABLES = ("runs", "images", "nodes", "node_pools", "resource_pools", "cache", "secrets")


class Named(dict[str, T]):
    """Things of a file by name; a name that is not there is a fault of the dodo.py."""

    def __init__(self, what: str, path: str) -> None:
        super().__init__()
        self.what = what
        self.path = path

    def __missing__(self, name: str) -> T:
        hint = did_you_mean(name, self) if self else ""
        raise ConfigError(f"no {self.what} `{name}` in `{self.path}`", place=self.path, hint=hint)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle with both arguments: `dict` would leave them out."""
        return (type(self), (self.what, self.path), None, None, iter(self.items()))


@dataclass(frozen=True)
class Project:
    """What a file defines, complete and checked.  Paths are relative to the folder of dodo.py.

    Args:
        path: the file.
        runs: trainings and commands by name, for `gt.train(project.runs["large"])`.
        images: images by name.
        nodes: nodes by name.
        node_pools: names or ssh destinations of nodes, by pool.
        resource_pools: how many units there are of each local pool.
        cache: where artifacts are kept, and how much of it.

    """

    path: str
    runs: Mapping[str, Run]
    images: Mapping[str, Image]
    nodes: Mapping[str, NodeSpec]
    node_pools: Mapping[str, tuple[str, ...]]
    resource_pools: Mapping[str, int]
    cache: CacheSettings


def load(path: str | os.PathLike[str] = DEFAULT) -> Project:
    """Read and check a file.

    Args:
        path: a TOML file; of a pyproject.toml, `[tool.gputasks]`.  Where the default is missing,
            the pyproject.toml beside it is taken.

    Raises:
        ConfigError: no file, two files, no TOML, or every fault of the file at once, each with its
            line.

    """
    document, prefix = _found(os.fspath(path))
    data = document.data
    for key in prefix:
        data = data.get(key, {})
    where = Faults("`[tool.gputasks]`" if prefix else f"`{document.path}`", document.place, prefix)
    project = _project(where, document.path, data)
    where.finish()
    return project


def find() -> Project | None:
    """What `load` finds in the working folder, or None where there is no such file.

    Raises:
        ConfigError: as `load`.

    """
    return None if beside("") is None else load()


def _found(path: str) -> tuple[Document, tuple[str, ...]]:
    if os.path.basename(path) == PYPROJECT:
        document = read_toml(path)
        if not _has_table(document):
            raise ConfigError(f"`{path}` has no `[tool.gputasks]`", hint=_misspelt(document))
        return document, INSIDE
    if path != DEFAULT:
        return read_toml(path), ()
    found = beside("")
    if found is None:
        pyproject = _pyproject(PYPROJECT)
        raise ConfigError(
            f"`{path}` is missing",
            facts=[f"looked in: {os.getcwd()}"],
            hint=_misspelt(pyproject) if pyproject else "",
        )
    return found


def beside(folder: str) -> tuple[Document, tuple[str, ...]] | None:
    """The file of the project in a folder, and where its tables lie in it; None without one.

    Raises:
        ConfigError: no TOML, or two files.

    """
    path = os.path.normpath(os.path.join(folder, DEFAULT))
    pyproject = _pyproject(os.path.normpath(os.path.join(folder, PYPROJECT)))
    inside = pyproject is not None and _has_table(pyproject)
    if not os.path.lexists(path):
        return (pyproject, INSIDE) if pyproject is not None and inside else None
    if pyproject is not None and inside:
        raise ConfigError(
            f"`{path}` and `[tool.gputasks]` of `{pyproject.path}` both define the project",
            place=pyproject.place(INSIDE),
            hint=f"keep one: move the tables to `{path}`",
        )
    return read_toml(path), ()


def _pyproject(path: str) -> Document | None:
    """The pyproject.toml, if it may concern us: most do not, and then it is not parsed."""
    try:
        with open(path, "rb") as file:
            concerns = b"tool" in (text := file.read()) and b"gpu" in text.lower()
    except OSError:
        return None
    return read_toml(path) if concerns else None


def _has_table(document: Document) -> bool:
    tool = document.data.get("tool")
    return isinstance(tool, dict) and isinstance(tool.get("gputasks"), dict)


def _misspelt(document: Document) -> str:
    tool = document.data.get("tool")
    names = list(tool) if isinstance(tool, dict) else []
    close = nearest("gputasks", names)
    return f"write `[tool.gputasks]`, not `[tool.{close}]`" if close else ""


def _project(faults: Faults, path: str, data: Mapping[str, Any]) -> Project:
    from gputasks.settings import tables

    faults.unknown((k for k in data if k not in TABLES), TABLES)

    def each(table: str, what: str, make: Callable[[Faults, str, Any], T | None]) -> Named[T]:
        named: Named[T] = Named(what, path)
        content = data.get(table, {})
        if not isinstance(content, dict):
            faults.must(table, f"a table, `[{table}.NAME]`", content)
            return named
        for name, value in content.items():
            inner = faults.inside(f"{what} `{name}`", table, name)
            if not isinstance(value, dict):
                inner.add(f"{what} `{name}` must be a table, `[{table}.{name}]`")
            elif tables.is_table_name(inner, what, name):
                made = make(inner, name, value)
                if made is not None:
                    named[name] = made
        return named

    pools: Named[int] = Named("resource pool", path)
    pools.update(tables.resource_pools(faults, data.get("resource_pools")))
    project = Project(
        path=path,
        runs=each("runs", "run", tables.run),
        images=each("images", "image", tables.image),
        nodes=each("nodes", "node", tables.node),
        node_pools=each("node_pools", "node pool", tables.node_pool),
        resource_pools=pools,
        cache=checked_cache(faults, data.get("cache", {})),
    )
    if "secrets" in data:
        from gputasks.settings.secrets import checked_secrets, refuse_elsewhere

        checked_secrets(faults, data["secrets"])
        refuse_elsewhere(faults, path)
    if "resource_pools" in data:
        tables.check_pools(faults, data.get("runs"), pools)
    return project
