"""The digest of a folder: by content, whatever the times, owners and permissions of its files.

It is the BLAKE3 of the folder's manifest (see `manifests`), which lists what `walk` finds.  The
executable bit does not count: copies lose it, and without it a program fails instead of doing
something else.

Two steps keep a second look cheap.  The *signature*, a hash over path and state of all entries, is
compared first: one `stat` per file, nothing loaded.  Only when it differs are the rows of the
folder loaded, and only files whose own state differs are read.  A signature is kept only once all
states in it have settled (see `hashing`).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from gputasks.errors import MachineError
from gputasks.fingerprint.hashing import hash_state
from gputasks.fingerprint.manifests import Writer
from gputasks.fingerprint.statcache import TREES
from gputasks.fingerprint.walk import LINK, walk

if TYPE_CHECKING:
    from gputasks.fingerprint.hashing import Tick
    from gputasks.fingerprint.statcache import StatCache

_SHARED = 1 << 20
"""Size from which a file met twice in a folder, by links, is read only once: bytes."""


class Tree(NamedTuple):
    """What a folder holds: `digest` is `tree:blake3:<hex>`, `bytes` the sum of the file sizes."""

    digest: str
    files: int
    bytes: int


def tree_digest(
    path: str, cache: StatCache, *, manifests: str = "", tick: Tick | None = None
) -> Tree:
    """Digest a folder.

    Args:
        path: a folder or a link to one; relative to the cache's root, or absolute.
        cache: what is known already; gets what is found out.
        manifests: folder that keeps manifests by digest, to tell later which file changed.
        tick: called with the number of bytes read since the last call.

    Raises:
        FileNotFoundError: the folder is not there.
        MachineError: something in it cannot be read, named.
        ConfigError: something in it is a fifo, socket or device, named.
    """
    full = cache.full(path).rstrip("/") or ("" if path.startswith("/") else ".")
    known = cache.get(TREES, path)
    if known is None and cache.refresh():
        known = cache.get(TREES, path)
    if known is not None:
        signature = _signature(full, path)
        if known[0] != signature and cache.refresh():
            known = cache.get(TREES, path)
        if known[0] == signature:
            return Tree(*known[1:])
    return _Digestion(path, full, cache, tick).run(manifests)


def _signature(full: str, path: str) -> str:
    from blake3 import blake3

    hasher = blake3()
    for entries in walk(full, path):
        text = "".join([f"{name}\0{state}\0" for name, state in entries])
        hasher.update(text.encode("utf-8", "surrogateescape"))
    return hasher.hexdigest()


class _Digestion:
    """One pass over a folder of which not everything is known."""

    def __init__(self, path: str, full: str, cache: StatCache, tick: Tick | None) -> None:
        self.path = path
        self.full = full
        self.cache = cache
        self.tick = tick
        self.old = cache.rows(path)
        self.rows: dict[str, str] = {}
        self.shared: dict[str, str] = {}
        self.changed = False
        self.all_settled = True

    def run(self, manifests: str) -> Tree:
        from blake3 import blake3

        signature = blake3()
        writer = Writer()
        files = size = 0
        try:
            for entries in walk(self.full, self.path):
                text: list[str] = []
                for name, state in entries:
                    if state.startswith(LINK):
                        digest = blake3(os.fsencode(state)).hexdigest()
                        writer.add("L", name, digest)
                    else:
                        digest, state = self._file(name, state)  # noqa: PLW2901  as it was when read
                        if not digest:
                            continue
                        writer.add("F", name, digest)
                        size += int(state.partition(" ")[0] or 0)
                    files += 1
                    text.append(f"{name}\0{state}\0")
                signature.update("".join(text).encode("utf-8", "surrogateescape"))
        except BaseException:
            # Ctrl-C after an hour of hashing must not cost that hour.
            if self.changed:
                self.cache.save_rows(self.path, {**self.old, **self.rows})
            raise
        if self.changed or len(self.rows) != len(self.old):
            self.cache.save_rows(self.path, self.rows)
        tree = Tree(f"tree:{writer.finish(manifests)}", files, size)
        if self.all_settled:
            self.cache.put(TREES, self.path, [signature.hexdigest(), *tree])
        return tree

    def _file(self, name: str, state: str) -> tuple[str, str]:
        """Hex digest and state of a file; an empty digest when it is gone."""
        row = self.old.get(name, "")
        known, _, rest = row.partition("\t")
        digest, _, seen = rest.partition(" ")
        if known == state and not seen:
            self.rows[name] = row
            return digest, state
        digest = self.shared.get(state, "")
        first = 0
        if not digest:
            try:
                digest, state, first = hash_state(
                    f"{self.full}/{name}", state, int(seen) if known == state else 0, self.tick
                )
            except FileNotFoundError:
                return "", ""
            except OSError as error:
                path = os.path.join(self.path, name)
                raise MachineError(f"`{path}` cannot be read: {error.strerror}") from error
            digest = digest.removeprefix("blake3:")
            if not first and state and int(state.partition(" ")[0]) >= _SHARED:
                self.shared[state] = digest
        self.changed = True
        self.all_settled = self.all_settled and bool(state) and not first
        self.rows[name] = f"{state}\t{digest} {first}" if first else f"{state}\t{digest}"
        return digest, state
