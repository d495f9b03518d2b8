"""Which environment a task has, and what is in it now."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from gputasks.environments import bases, requirements
from gputasks.fingerprint.interpreters import Interpreter, virtual
from gputasks.frozen import Frozen, spec
from gputasks.layout import read_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gputasks.environments.bases import Base
    from gputasks.environments.requirements import Requirements
    from gputasks.fingerprint import Digests
    from gputasks.layout import Layout
    from gputasks.specs import Run

FORMAT = 1
"""Of the key and of `ready.json`: a change makes all environments anew."""

READY = "ready.json"
"""Written last: an environment without it was never finished."""

USED = "used"
"""Touched at each start, and locked (shared) while something runs in the environment."""


@spec
class Environment(Frozen):
    """A virtual environment, there or not.

    Args:
        folder: where it is, or will be.
        base: the Python it is made from.
        requirements: what it holds.
        root: of the project that wants it, absolute.

    """

    folder: str
    base: Base
    requirements: Requirements
    root: str

    @property
    def name(self) -> str:
        """The digest of all that decides what is in it."""
        return os.path.basename(self.folder)

    @property
    def bin(self) -> str:
        """The folder of its programs."""
        return os.path.join(self.folder, "bin")

    @property
    def python(self) -> str:
        """Its interpreter."""
        return os.path.join(self.bin, "python")

    @property
    def lock(self) -> str:
        """Lock of whoever makes or removes it."""
        return f"{self.folder}.lock"

    def ready(self) -> bool:
        """True when it was finished, here: its scripts hold its absolute path."""
        said = read_json(os.path.join(self.folder, READY))
        return (
            isinstance(said, dict)
            and said.get("format") == FORMAT
            and said.get("folder") == os.path.realpath(self.folder)
            and os.path.exists(self.python)
        )

    def interpreter(self) -> Interpreter:
        """Its Python and what is in it, of which nothing is known while it is not there."""
        found = virtual(self.folder, self.base.version, self.base.implementation)
        # Newer editable installations add their folder by code, which nobody reads.
        sources = [s for e in self.requirements.editable for s in (e, os.path.join(e, "src"))]
        dirs = tuple(dict.fromkeys([*found.source_dirs, *filter(os.path.isdir, sources)]))
        return found._replace(source_dirs=dirs)

    def activated(self, env: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
        """The task's variables as in an activated environment: its programs are found first."""
        path = env.get("PATH") or environ.get("PATH") or os.defpath
        return {**env, "PATH": f"{self.bin}{os.pathsep}{path}", "VIRTUAL_ENV": self.folder}


def home(layout: Layout) -> str:
    """The folder of all environments: `.gputasks/envs`, or `$GPUTASKS_ENVS_DIR`."""
    shared = os.environ.get("GPUTASKS_ENVS_DIR")
    if shared:
        return os.path.abspath(os.path.join(layout.root, os.path.expanduser(shared)))
    return os.path.abspath(os.path.join(layout.state, "envs"))


def look(run: Run, digests: Digests) -> Environment:
    """The environment that a run wants.

    Raises:
        ConfigError: faulty requirements, or there is no such Python.

    """
    wanted = requirements.read(run, digests)
    base = bases.find(run.python, digests)
    folder = os.path.join(home(digests.layout), _key(base, wanted))
    return Environment(folder, base, wanted, os.path.abspath(digests.layout.root))


def _key(base: Base, wanted: Requirements) -> str:
    from blake3 import blake3

    what = [
        FORMAT,
        base.executable,
        base.version,
        os.uname().machine,
        sorted(wanted.lines),
        wanted.local,
        wanted.editable,
    ]
    return blake3(json.dumps(what, sort_keys=True).encode()).hexdigest(length=10)
