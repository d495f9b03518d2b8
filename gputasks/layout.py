"""Where things lie under `.gputasks/`, and how files get there whole.

====================== =========================================================================
receipts/TASK.json     what a finished task consumed and left; absent while it runs, or failed
digests/TASK           digests of its outputs only, rewritten only when they change
runs/TASK/RUN_ID/      run.json, events.jsonl, attempt-N/ with one log per rank
images/NAME.json       what an image was built from, and what is in it
images/NAME.digest     what is in it only, rewritten only when that changes
locks/TASK.lock        flock of the task that runs
envs/                  virtual environments of tasks with `requirements`
trees/                 manifests of directories, to say which file changed
cache/                 artifacts of earlier runs, see `cache`
trash/TASK/RUN_ID/     what stood at an artifact's path before a fresh run
state.db, stat-cache   doit's records; digests by file state
====================== =========================================================================
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from typing import Any

STATE_DIR = ".gputasks"

_PLAIN = re.compile(r"[A-Za-z0-9_:-][A-Za-z0-9_.:+@,= ~-]*")


class Layout:
    """Paths below one `.gputasks` folder.  `root` is the folder of dodo.py."""

    def __init__(self, root: str = ".") -> None:
        self.root = root
        self.state = os.path.normpath(os.path.join(root, STATE_DIR))

    def prepare(self) -> None:
        """Make the state folder; it ignores itself in git and whatever honours .gitignore.

        Raises:
            OSError: the folder cannot be written.

        """
        os.makedirs(self.state, exist_ok=True)
        ignore = os.path.join(self.state, ".gitignore")
        if not os.path.exists(ignore):
            write_whole(ignore, b"*\n")

    def receipt(self, task: str) -> str:
        """Path of the full receipt."""
        return os.path.join(self.state, "receipts", file_name(task) + ".json")

    def digests(self, task: str) -> str:
        """Path of the digests file: what downstream depends on."""
        return os.path.join(self.state, "digests", file_name(task))

    def image_receipt(self, name: str) -> str:
        """Path of the receipt of an image."""
        return os.path.join(self.state, "images", file_name(name) + ".json")

    def image_digest(self, name: str) -> str:
        """Path of an image's digest file: what trainings that run in it depend on."""
        return os.path.join(self.state, "images", file_name(name) + ".digest")

    def lock(self, task: str) -> str:
        """Path of the task's lock."""
        return os.path.join(self.state, "locks", file_name(task) + ".lock")

    def runs(self, task: str) -> str:
        """Folder of all runs of a task."""
        return os.path.join(self.state, "runs", file_name(task))

    def run(self, task: str, run_id: str) -> str:
        """Folder of one run."""
        return os.path.join(self.runs(task), run_id)

    def forgotten(self, task: str) -> str:
        """Where the receipt of a task lies after `doit forget`."""
        return os.path.join(self.state, "receipts", file_name(task) + ".forgotten")

    def storing(self, task: str) -> str:
        """Path of the lock that is held while a task's artifacts are copied into the cache."""
        return os.path.join(self.state, "locks", file_name(task) + ".storing")

    @property
    def cache(self) -> str:
        """The cache, where nothing else is said."""
        return os.path.join(self.state, "cache")

    def trash(self, task: str, run_id: str) -> str:
        """Where artifacts go that stood in the way of a fresh run."""
        return os.path.join(self.state, "trash", file_name(task), run_id)

    @property
    def trees(self) -> str:
        """Folder of directory manifests."""
        return os.path.join(self.state, "trees")

    @property
    def stat_cache(self) -> str:
        """Path of the stat cache."""
        return os.path.join(self.state, "stat-cache")

    @property
    def database(self) -> str:
        """Path of doit's database."""
        return os.path.join(self.state, "state.db")


def file_name(task: str) -> str:
    """A task's name as a file name: readable, one to one, never a path."""
    if not _PLAIN.fullmatch(task):
        # Half a millisecond that most names do not cost.
        from urllib.parse import quote

        task = quote(task, safe=":+@,= ~")
    name = task
    return "%2E" + name[1:] if name.startswith(".") else name


def write_whole(path: str, data: bytes, *, sync: bool = True) -> None:
    """Write a file so that it is either old or new, whatever happens.

    Raises:
        OSError: no space, no permission; the old file is untouched.

    """
    folder = os.path.dirname(path) or "."
    os.makedirs(folder, exist_ok=True)
    # Not `tempfile`, whose import is a twentieth of what a no-op may cost.
    temporary = os.path.join(folder, f".tmp-{os.getpid()}-{os.urandom(6).hex()}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            if sync:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def write_json(path: str, value: Any, *, sync: bool = True) -> None:
    """`write_whole` for JSON, readable and with sorted keys."""
    text = json.dumps(value, indent=1, sort_keys=True, default=str)
    write_whole(path, text.encode("utf-8", "backslashreplace") + b"\n", sync=sync)


def read_json(path: str) -> Any | None:
    """The value, or None when the file is missing or is no JSON."""
    try:
        with open(path, "rb") as file:
            return json.loads(file.read())
    except (OSError, ValueError):
        return None
