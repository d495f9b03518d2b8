"""The build context: which files can reach the image, their digest, the tar that is sent.

The same walk serves all three, so what is hashed is what is sent.  Times, owners and permissions
but the executable bit do not count and are not sent: a fresh clone makes the same image.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from gputasks.errors import ConfigError, MachineError
from gputasks.fingerprint.hashing import hash_state, state_of
from gputasks.fingerprint.manifests import Writer
from gputasks.fingerprint.statcache import TREES
from gputasks.images.patterns import BadPatternError, Matcher, parse, read_lines
from gputasks.images.sources import Sources

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gputasks.fingerprint.statcache import StatCache
    from gputasks.images.patterns import Seen

ALWAYS_OUT = (
    "**/.git",
    "**/.gputasks",
    "**/.venv",
    "**/__pycache__",
    "**/*.pyc",
    "**/.doit.db*",
)
"""Left out unless a `.dockerignore` brings them back with `!`."""

LARGE = 100_000_000
"""Bytes of a context above which its largest entries are told."""

FILE, PROGRAM, LINK, FOLDER = "F", "X", "L", "D"
_NOTHING = "0" * 64


class Entry(NamedTuple):
    """One thing of the context: `state` is a file's state, or the text of a link."""

    path: str
    kind: str
    state: str

    @property
    def size(self) -> int:
        """Bytes of a file's content."""
        return int(self.state.partition(" ")[0]) if self.kind in (FILE, PROGRAM) else 0


class Content(NamedTuple):
    """What a context holds."""

    digest: str
    files: int
    bytes: int


class Context:
    """A folder, seen through ignore patterns and through what a Dockerfile takes of it.

    Args:
        root: the folder, relative to the working folder or absolute.
        ignore: lines of a `.dockerignore`, after the defaults.
        sources: what instructions take; None for all of it.

    """

    def __init__(
        self, root: str, ignore: Sequence[str] = (), sources: Sequence[str] | None = None
    ) -> None:
        self.root = root
        try:
            self.matcher = Matcher(parse([*ALWAYS_OUT, *ignore]))
        except BadPatternError as error:
            raise ConfigError(
                f"{error}, among what the build context `{root}` leaves out",
                hint="`.dockerignore` has the patterns of Go's `filepath.Match`, and `**`",
            ) from None
        self.ignore = (*ALWAYS_OUT, *ignore)
        self.sources = Sources(sources)
        if self.sources.lead_through_links(root):
            self.sources = Sources(None)

    def entries(self) -> Iterator[Entry]:
        """All that counts, parents before what is in them, in one stable order.

        Raises:
            MachineError: a folder cannot be read.

        """
        if not self.sources.nothing:
            yield from self._folder("", (), whole=self.sources.all)

    def _folder(self, prefix: str, above: Seen, *, whole: bool) -> Iterator[Entry]:
        """The entries of one folder; `whole` when all of it is taken."""
        path = os.path.join(self.root, prefix)
        try:
            with os.scandir(path or ".") as found:
                items = sorted(found, key=_name)
        except FileNotFoundError:
            if not prefix:
                raise MachineError(f"the build context `{self.root}` is missing") from None
            return
        except OSError as error:
            raise MachineError(f"`{path}` cannot be read: {error.strerror}") from error
        matcher, plain, seen = self.matcher, self.matcher.plain, above
        inside = may = True
        for item in items:
            name = prefix + item.name
            if not whole:
                inside, may = self.sources.ask(name)
                if not may:
                    continue
            if plain:
                out = matcher.plainly(name, item.name)
            else:
                out, seen = matcher.ask(name, above)
            try:
                if item.is_dir(follow_symlinks=False):
                    if not out:
                        if inside:
                            yield Entry(name, FOLDER, "")
                        yield from self._folder(f"{name}/", seen, whole=inside)
                    elif matcher.may_return(name):
                        inner = self._folder(f"{name}/", seen, whole=inside)
                        yield from _with_parent(name, inner)
                    continue
                if out or not inside:
                    continue
                if item.is_symlink():
                    yield Entry(name, LINK, os.readlink(item.path))
                    continue
                info = item.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue  # removed since it was listed
            if stat.S_ISREG(info.st_mode):
                yield Entry(name, PROGRAM if info.st_mode & 0o100 else FILE, state_of(info))

    def content(self, cache: StatCache, *, key: str, manifests: str = "") -> Content:
        """Digest of all entries; untouched files are not read again.

        Args:
            cache: what is known of files.
            key: under which name it is known.
            manifests: folder that keeps what was found, to tell later which file changed.

        Raises:
            MachineError: something cannot be read.

        """
        from blake3 import blake3

        entries = list(self.entries())
        text = "\0".join([f"{e.path}\0{e.kind}{e.state}" for e in entries])
        signature = str(blake3(text.encode("utf-8", "surrogateescape")).hexdigest())
        known = cache.get(TREES, key)
        if known is None and cache.refresh():
            known = cache.get(TREES, key)
        if known is not None and known[0] == signature:
            return Content(*known[1:])
        old, rows, writer = cache.rows(key), {}, Writer()
        settled, size = True, 0
        for entry in entries:
            digest, row = self._digest(entry, old.get(entry.path, ""))
            writer.add(entry.kind, entry.path, digest)
            size += entry.size
            if row:
                rows[entry.path] = row
                settled = settled and row.startswith(f"{entry.state}\t") and row.endswith(" 0")
        if rows != old:
            cache.save_rows(key, rows)
        found = Content(f"tree:{writer.finish(manifests)}", len(entries), size)
        if settled:
            cache.put(TREES, key, [signature, *found])
        return found

    def _digest(self, entry: Entry, row: str) -> tuple[str, str]:
        """Hex digest of one entry, and the row to remember it by."""
        if entry.kind == FOLDER:
            return _NOTHING, ""
        if entry.kind == LINK:
            from blake3 import blake3

            return str(blake3(os.fsencode(entry.state)).hexdigest()), ""
        known, _, rest = row.partition("\t")
        digest, _, seen = rest.partition(" ")
        if known == entry.state and seen == "0":
            return digest, row
        path = os.path.join(self.root, entry.path)
        try:
            first = int(seen) if known == entry.state and seen else 0
            digest, state, when = hash_state(path, entry.state, first)
        except FileNotFoundError:
            return _NOTHING, ""
        except OSError as error:
            raise MachineError(f"`{path}` cannot be read: {error.strerror}") from error
        digest = digest.removeprefix("blake3:")
        return digest, f"{state}\t{digest} {when}"

    def largest(self, count: int = 5) -> list[tuple[str, int]]:
        """The entries of the first level that weigh most, with their bytes."""
        sizes: dict[str, int] = {}
        for entry in self.entries():
            top = entry.path.partition("/")[0]
            sizes[top] = sizes.get(top, 0) + entry.size
        return sorted(sizes.items(), key=lambda item: -item[1])[:count]


def ignore_lines(root: str, dockerignore: str | Sequence[str], dockerfile: str = "") -> list[str]:
    """The patterns that hold: given ones, else those of a file.

    As BuildKit does it, `Dockerfile.dockerignore` beside the Dockerfile goes before the
    `.dockerignore` of the context.

    Raises:
        MachineError: the named file cannot be read.

    """
    if not isinstance(dockerignore, str):
        return list(dockerignore)
    candidates = [dockerignore] if dockerignore else []
    if not candidates:
        candidates = [f"{dockerfile}.dockerignore"] if dockerfile else []
        candidates.append(os.path.join(root, ".dockerignore"))
    for path in candidates:
        try:
            with open(path, "rb") as file:
                return read_lines(file.read())
        except OSError as error:
            if dockerignore or not isinstance(error, FileNotFoundError):
                raise MachineError(f"`{path}` cannot be read: {error.strerror}") from error
    return []


def _with_parent(name: str, inner: Iterator[Entry]) -> Iterator[Entry]:
    """What came back from a folder that is left out, behind the folder itself."""
    first = next(inner, None)
    if first is not None:
        yield Entry(name, FOLDER, "")
        yield first
        yield from inner


def _name(item: os.DirEntry[str]) -> str:
    return item.name
