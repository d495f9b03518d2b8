"""The names that a Python source imports.  Loaded only when a file changed: `ast` is not cheap."""

from __future__ import annotations

import ast
import os
import re
import warnings
from typing import TYPE_CHECKING

from gputasks.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

_LINE = re.compile(
    rb"^[ \t]*(?:from[ \t]+(?P<module>[.\w]+)[ \t]+import[ \t(]+(?P<names>[^#;\n]*)"
    rb"|import[ \t]+(?P<modules>[^#;\n]*))",
    re.MULTILINE,
)
_WORD = re.compile(r"[.\w]+")


def imported_names(source: bytes, path: str, *, strict: bool) -> list[str]:
    """Dotted names, sorted; `from a import b` gives `a.b`, of which `b` may be no module.

    Args:
        source: the file.
        path: its path, for the error and because an `__init__.py` may name submodules.
        strict: raise for what does not parse; else look at lines that look like imports.

    Raises:
        ConfigError: the source does not parse.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the user's source; Python says them when it runs
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if strict:
            line = getattr(error, "lineno", None)
            reason = getattr(error, "msg", None) or str(error) or "too deeply nested"
            place = f"{path}:{line}" if line else path
            raise ConfigError(f"`{path}` does not parse: {reason}", place=place) from None
        return sorted(set(_by_line(source)))
    return sorted(set(_by_tree(tree, package=os.path.basename(path) == "__init__.py")))


def _by_tree(tree: ast.AST, *, package: bool) -> Iterator[str]:
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from _from(node.level, node.module or "", (alias.name for alias in node.names))
        elif isinstance(node, ast.If) and _type_checking(node.test):
            stack.extend(node.orelse)
        else:
            if isinstance(node, ast.Call):
                yield from _called(node)
            elif package and isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
                yield from _all(node)
            stack.extend(ast.iter_child_nodes(node))


def _from(level: int, module: str, names: Iterator[str]) -> Iterator[str]:
    for name in names:
        words = [w for w in (module, name) if w and w != "*"]
        yield "." * level + ".".join(words)


def _type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def _called(node: ast.Call) -> Iterator[str]:
    """`importlib.import_module("a.b")`, `import_module(".b", __package__)`, `__import__("a")`."""
    name = getattr(node.func, "attr", None) or getattr(node.func, "id", None)
    if name in ("import_module", "__import__") and node.args:
        first = node.args[0]
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            word = first.value
            if word.replace(".", "").isidentifier():
                yield word


def _all(node: ast.Assign | ast.AugAssign | ast.AnnAssign) -> Iterator[str]:
    """`from package import *` imports the submodules that `__all__` names."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    if not any(isinstance(t, ast.Name) and t.id == "__all__" for t in targets):
        return
    for element in getattr(node.value, "elts", ()):
        if isinstance(element, ast.Constant) and isinstance(element.value, str):
            yield f".{element.value}"


def _by_line(source: bytes) -> Iterator[str]:
    for match in _LINE.finditer(source):
        module = (match["module"] or b"").decode("utf-8", "replace")
        text = (match["names"] or match["modules"] or b"").decode("utf-8", "replace")
        words = [found[0] for part in text.split(",") if (found := _WORD.search(part))]
        if match["modules"]:
            yield from words
        else:
            bare = module.lstrip(".")
            yield from _from(len(module) - len(bare), bare, iter(words or ["*"]))
