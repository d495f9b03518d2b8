"""Pipes between workers that know secrets and their logs.

Standard library, Python 3.8 or later, Linux.  The guard makes one pipe for what the launcher, or a
command, prints, and a named one for each rank, which its shim opens: launchers close all that they
do not know, so that a rank can inherit nothing.  A pipe keeps what a killed worker wrote.

The guard has both ends of each pipe open.  So nobody who prints gets SIGPIPE while one of the two
guards lives, and no end of file tells anything: what is left is read when all workers are dead.
"""

from __future__ import annotations

import fcntl
import os
import select

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Sequence

    from gputasks.agent.redact import Redactor, Stream
else:
    from redact import Stream

F_SETPIPE_SZ = 1031
SIZE = 1 << 20
"""What fits into a pipe, and is read at once: also as much as users may ask the kernel for."""

PIPES = "GPUTASKS_LOG_PIPES"
"""Variable that tells the shims where the named pipes lie."""


class Pump:
    """Made before the guard forks: whichever of its two processes lives longer, moves the bytes.

    Args:
        redactor: what must not get into the logs.
        output: the log of what is inherited, by the job itself and by whoever prints before a shim.
        rank_logs: the logs of the ranks, by rank.

    Raises:
        OSError: no pipe can be made, or no log.

    """

    def __init__(self, redactor: Redactor, output: str, rank_logs: Sequence[str]) -> None:
        self.folder = ""
        self._logs: Dict[int, _Log] = {}
        reader, self.writer = os.pipe()
        os.set_blocking(reader, False)
        self._add(reader, output, redactor)
        if rank_logs:
            self.folder = _make_folder()
        for rank, log in enumerate(rank_logs):
            path = os.path.join(self.folder, "rank-%d" % rank)
            os.mkfifo(path, 0o600)
            # For both directions: Linux allows it, and so it waits for nobody.
            self._add(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC), log, redactor)

    def _add(self, reader: int, log: str, redactor: Redactor) -> None:
        try:
            fcntl.fcntl(reader, F_SETPIPE_SZ, SIZE)
        except OSError:
            pass  # this user has many pipes; a small one does as well, and costs more turns
        self._logs[reader] = _Log(log, redactor)

    def turn(self, *more: int, timeout_s: float) -> bool:
        """Wait for something to read, and move it; True when one of `more` can be read."""
        poll = select.poll()
        for fd in (*self._logs, *more):
            poll.register(fd, select.POLLIN)
        found = [fd for fd, _ in poll.poll(timeout_s * 1000)]
        for fd in found:
            if fd in self._logs:
                self._move(fd)
        return any(fd in more for fd in found)

    def _move(self, reader: int) -> bool:
        try:
            data = os.read(reader, SIZE)
        except BlockingIOError:
            return False
        self._logs[reader].write(data)
        return bool(data)

    def finish(self) -> None:
        """Move what is left when all who could write are dead, and remove the pipes."""
        for reader, log in self._logs.items():
            while self._move(reader):
                pass
            log.end()
        try:
            if self.folder:
                for name in os.listdir(self.folder):
                    os.unlink(os.path.join(self.folder, name))
                os.rmdir(self.folder)
        except OSError:
            pass  # in the weeks of a training somebody may have tidied /tmp


class _Log:
    """A log file, opened when there is something for it: a rank that never came has none."""

    def __init__(self, path: str, redactor: Redactor) -> None:
        self._path = path
        self._fd = -1
        self._stream = Stream(redactor)
        self._lost = 0

    def write(self, data: bytes) -> None:
        self._append(self._stream.feed(data))

    def end(self) -> None:
        self._append(self._stream.feed(b"", last=True))
        if self._lost:
            text = "gputasks: %d bytes of this log found no space\n" % self._lost
            self._append(text.encode())

    def _append(self, data: bytes) -> None:
        """On a full disk the log has a gap: a worker must not hang because nobody reads."""
        view = memoryview(data)
        try:
            if view and self._fd < 0:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                self._fd = os.open(self._path, flags, 0o644)
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError:
            self._lost += len(view)


def _make_folder() -> str:
    """A folder that only this user can open; not in the project, whose disk may know no pipes."""
    for base in (os.environ.get("TMPDIR"), "/tmp"):  # noqa: S108  the name is a random one
        if base and os.path.isdir(base):
            path = os.path.join(base, "gputasks-%s" % os.urandom(8).hex())
            try:
                os.mkdir(path, 0o700)
            except OSError:
                continue
            return path
    raise OSError("no folder for pipes: neither $TMPDIR nor /tmp can be written")
