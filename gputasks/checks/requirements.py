"""The grammar of one line of requirements: names, paths, URLs, options.  Nothing is opened here.

What pip and uv both read is understood; anything else is a fault, before an installer is started.
A line has a *normal form*, `torch==2.13.0` for `Torch == 2.13.0`, so that spelling is no change.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from gputasks.checks.paths import as_text, clean_path, is_outside
from gputasks.checks.values import has_control, unsendable

if TYPE_CHECKING:
    from gputasks.checks.faults import Faults

_FILES = {"-r": "-r", "--requirement": "-r", "-c": "-c", "--constraint": "-c"}
_EDITABLE = ("-e", "--editable")
_INDEXES = {"-i": "--index-url", "--pypi-url": "--index-url", "--index-url": "--index-url",
            "--extra-index-url": "--extra-index-url"}  # fmt: skip
_LINKS = {"-f": "--find-links", "--find-links": "--find-links"}
_WITH_VALUE = ("--no-binary", "--only-binary", "--trusted-host", "--use-feature")
_FLAGS = ("--no-index", "--pre", "--prefer-binary", "--require-hashes")
_ARCHIVES = (".whl", ".tar.gz", ".tar.bz2", ".tgz", ".zip")
_OPEN = "${secrets."

_NAME = re.compile(r"([A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?)\s*(?:\[([^\]]*)\])?\s*(.*)", re.DOTALL)
_SPEC = re.compile(r"(===|==|~=|!=|<=|>=|<|>)\s*([^\s,;=<>!~]+)")
_URL = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*://|file:|git\+)")
_COMMIT = re.compile(r"@[0-9a-f]{40}(?:#|$)")
_USER = re.compile(r"(https?)://([^@/]+)@([^@]+)")


class Line(NamedTuple):
    """One line, understood.

    Args:
        kind: `name`, `path`, `url`; `-r` or `-c` for a further file; `index`, `links`, `option`.
        name: what it is about: a package, a path, an option.
        text: its normal form.
        value: the path, file or URL in it.
        tail: what stands behind a path: extras, marker.
        editable: `-e`.
        pinned: no other version can come of it.

    """

    kind: str
    name: str
    text: str
    value: str = ""
    tail: str = ""
    editable: bool = False
    pinned: bool = False


class LineError(ValueError):
    """A line that is none, and what may have been meant."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def parse_line(text: str) -> Line | None:
    """The line, or None for an empty one or a comment.

    Raises:
        LineError: an unknown option, no name of a package, a secret where others could see it.

    """
    text = re.sub(r"(^|\s+)#.*$", "", text).strip()
    if not text:
        return None
    line = _option(text) if text.startswith("-") else _requirement(text)
    if _OPEN in text and line.kind != "index":
        raise LineError(
            "a secret can stand only in the URL of an index",
            "`--index-url https://${secrets.NAME}@host/simple`",
        )
    return line


def _option(text: str) -> Line:
    head = re.split(r"[\s=]", text, maxsplit=1)
    word, value = head[0], head[1].strip() if len(head) > 1 else ""
    if not word.startswith("--") and len(word) > 2:  # `-rfile`
        word, value = text[:2], text[2:].strip()
    if word in _FLAGS and not value:
        return Line("option", word, word)
    known = (*_FILES, *_EDITABLE, *_INDEXES, *_LINKS, *_WITH_VALUE)
    if word not in known:
        from gputasks.errors import did_you_mean

        raise LineError(f"option `{word}` is not known here", did_you_mean(word, (*known, *_FLAGS)))
    if not value:
        raise LineError(f"`{word}` needs a value")
    if word in _FILES:
        if _URL.match(value):
            raise LineError(
                f"`{word}` of a URL cannot be compared with what was there before",
                "download it, and name the file",
            )
        return Line(_FILES[word], value, f"{_FILES[word]} {value}", value)
    if word in _EDITABLE:
        return _editable(value)
    if word in _INDEXES:
        return _index(_INDEXES[word], value)
    if word in _LINKS:
        return Line("links", "--find-links", f"--find-links {value}", value)
    return Line("option", word, f"{word} {value}", value)


def _editable(value: str) -> Line:
    line = _requirement(value)
    if line.kind == "name":
        line = _path(value)  # `-e pkg` is a folder
    return line._replace(text=f"-e {line.text}", editable=True)


def _index(option: str, url: str) -> Line:
    if _OPEN in url:
        found = _USER.fullmatch(url)
        if found is None or _OPEN in found[3] or not _whole_references(found[2]):
            raise LineError(
                "a secret can stand only in the user part of an index's URL",
                f"`{option} https://${{secrets.NAME}}@host/simple`",
            )
    return Line("index", option, f"{option} {url}", url)


def _whole_references(text: str) -> bool:
    return _OPEN not in re.sub(r"\$\{secrets\.[A-Za-z_][A-Za-z0-9_]*\}", "", text)


def split_index(url: str) -> tuple[str, str, str]:
    """Of an index's URL with a secret: the URL without its user part, user and password."""
    scheme, _, rest = url.partition("://")
    who, _, host = rest.partition("@")
    # A reference holds no colon.
    user, _, password = who.partition(":")
    return f"{scheme}://{host}", user, password


def _requirement(text: str) -> Line:
    text, *options = re.split(r"\s+(?=--\w)", text)
    bad = [o for o in options if not re.match(r"--(hash|config-settings?|global-option)\b", o)]
    if bad:
        raise LineError(f"`{bad[0]}` cannot stand behind a requirement")
    hashes = sorted(o.replace("--hash ", "--hash=") for o in options)
    line = _bare(text.strip())
    return line._replace(
        text=" ".join([line.text, *hashes]),
        pinned=line.pinned or any(o.startswith("--hash") for o in hashes),
    )


def _bare(text: str) -> Line:
    name, at, target = text.partition(" @ ")
    if at and _NAME.fullmatch(name.strip()):
        line = _target(target.strip())
        return line._replace(text=f"{name.strip()} @ {line.text}")
    if _URL.match(text) or _is_path(text):
        return _target(text)
    head, _, marker = text.partition(";")
    found = _NAME.fullmatch(head.strip())
    if found is None:
        raise LineError(f"`{text}` is no requirement")
    package, extras, rest = found[1], found[2] or "", found[3].strip().strip("()").strip()
    specs = []
    for part in filter(None, (p.strip() for p in rest.split(","))):
        spec = _SPEC.fullmatch(part)
        if spec is None:
            version = part.lstrip("=~<>! ")
            raise LineError(f"`{text}` is no requirement", f"write `{package}=={version}`")
        specs.append(spec[1] + spec[2])
    name = "-".join(filter(None, re.split(r"[-_.]+", package.lower())))
    inner = ",".join(sorted(e.strip() for e in extras.split(",") if e.strip()))
    normal = name + (f"[{inner}]" if inner else "") + ",".join(sorted(specs))
    normal += f"; {' '.join(marker.split())}" if marker.strip() else ""
    pinned = any(s.startswith("===") or (s.startswith("==") and "*" not in s) for s in specs)
    return Line("name", name, normal, pinned=pinned)


def _is_path(text: str) -> bool:
    head = text.partition(";")[0].partition("[")[0].strip()
    return head.startswith(".") or "/" in head or head.endswith(_ARCHIVES)


def _target(text: str) -> Line:
    """What stands behind `@`, or alone: a URL or a path."""
    if text.startswith("file:"):
        return _path(re.sub(r"^file:(//(localhost)?)?(?=/)", "", text))
    if not _URL.match(text):
        return _path(text)
    pinned = bool(_COMMIT.search(text)) or "#sha256=" in text or "&sha256=" in text
    return Line("url", text, text, text, pinned=pinned)


def _path(text: str) -> Line:
    found = re.fullmatch(r"([^;\[]+?)\s*(\[[^\]]*\])?\s*(;.*)?", text)
    if found is None:
        raise LineError(f"`{text}` is no path")
    path = os.path.normpath(found[1])
    # Without a slash it would be a package of that name to the installer.
    path = path if "/" in path or path in (".", "..") else f"./{path}"
    tail = (found[2] or "") + (f" {found[3]}" if found[3] else "")
    return Line("path", path, path + tail, path, tail, pinned=True)


def requirement_lines(faults: Faults, value: Any, made: tuple[str, ...] = ()) -> tuple[str, ...]:
    """`requirements=`: a file, or a list of lines, as lines.

    Args:
        faults: where to note them.
        value: what was given.
        made: declared inputs: these files may be yet to be made by another task.

    """
    value = as_text(value)
    if isinstance(value, str):
        return _file(faults, value, made)
    if not isinstance(value, (list, tuple)):
        faults.must("requirements", "a file or a list of requirements", value)
        return ()
    lines = []
    for item in value:
        if not isinstance(item, str) or has_control(item) or unsendable(item):
            faults.must("requirements", "a list of requirements, one text each", item)
            continue
        try:
            if parse_line(item) is not None:
                lines.append(item.strip())
        except LineError as error:
            faults.add(
                f"{error} in `requirements` of {faults.owner}", "requirements", hint=error.hint
            )
    return tuple(lines)


def _file(faults: Faults, value: str, made: tuple[str, ...]) -> tuple[str, ...]:
    path = clean_path(faults, "requirements", value)
    if not path:
        return ()
    if os.path.isfile(path) or path in made:
        # Outside the project it is still a file that one may name.
        return (f"-r {path if is_outside(path) else './' + path}",)
    fault = "is a folder" if os.path.isdir(path) else "is missing"
    try:
        line = parse_line(value)
    except LineError:
        line = None
    meant = line is not None and line.kind == "name" and not value.endswith((".txt", ".in"))
    faults.add(
        f"requirements file `{path}` {fault}",
        "requirements",
        hint=f'requirements themselves are a list: `requirements=["{value}"]`' if meant else "",
    )
    return ()
