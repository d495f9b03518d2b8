"""Who this worker is; its log, its events, its signals."""

from __future__ import annotations

import os
import sys
import time


class Rank:
    """One worker, as torch's launcher describes it in the environment."""

    def __init__(self) -> None:
        self.rank = _number("RANK", 0)
        self.local_rank = _number("LOCAL_RANK", 0)
        self.world_size = _number("WORLD_SIZE", 1)
        self.log_dir = os.environ.get("GPUTASKS_LOG_DIR", "")
        self.start_folder = os.getcwd()
        self._signals = -1

    def file(self, ending: str) -> str:
        """Path of one of this rank's files in the log folder; empty when there is no folder."""
        return os.path.join(self.log_dir, f"rank-{self.rank}.{ending}") if self.log_dir else ""

    def redirect(self) -> None:
        """Send file descriptors 1 and 2 to the rank's log, and make Python's own streams UTF-8.

        The locale does not decide about encoding: under `LC_ALL=C` a `print("✓")` must not end a
        training.  In a task with secrets the log is written by the guard, from a pipe.
        """
        path = self.file("log")
        if path:
            try:
                fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
                pipes = os.environ.get("GPUTASKS_LOG_PIPES")
                if pipes:
                    os.close(fd)
                    fd = os.open(os.path.join(pipes, f"rank-{self.rank}"), os.O_WRONLY)
            except OSError as error:
                sys.exit(f"gputasks: the log of rank {self.rank} cannot be written: {error}")
            for target in (1, 2):
                os.dup2(fd, target)
            os.close(fd)
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)

    def announce(self) -> None:
        """Append the `rank` event, and tell the script where events go."""
        folder = os.environ.get("GPUTASKS_EVENTS_DIR", "")
        if not folder:
            return
        path = os.path.join(folder, f"rank-{self.rank}.jsonl")
        os.environ["GPUTASKS_EVENTS"] = path
        # Written by hand: importing json would cost more than everything else here.
        line = (
            f'{{"t":{time.time():.3f},"kind":"rank","rank":{self.rank},'
            f'"world_size":{self.world_size},"local_rank":{self.local_rank},"pid":{os.getpid()}}}\n'
        )
        try:
            with open(path, "ab") as file:
                file.write(line.encode())
        except OSError as error:
            print(f"gputasks: events cannot be written: {error}", file=sys.stderr)

    def watch_signals(self) -> None:
        """Stacks on SIGUSR1 and on crashes; remember a SIGTERM that the script handles itself.

        The wakeup file descriptor sees each signal for which Python code has a handler, and changes
        no handler: a script, or Lightning, which may end with code 0 then, behaves as ever.
        """
        import faulthandler
        import signal

        stacks = os.dup(2)  # the script may do what it likes with its stderr
        faulthandler.enable(stacks)
        faulthandler.register(signal.SIGUSR1, stacks)
        self._signals, write = os.pipe()
        os.set_blocking(self._signals, False)
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        # A forked DataLoader worker shares the pipe, and SIGTERM is how it is ended normally.
        os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))

    def note_sigterm(self) -> bool:
        """True when SIGTERM was handled; leaves `rank-N.signal` then."""
        from signal import SIGTERM

        try:
            seen = os.read(self._signals, 65536)
        except OSError:  # there is nothing to read
            return False
        if SIGTERM not in seen:
            return False
        write_whole(self.file("signal"), b"SIGTERM\n")
        return True


def _number(name: str, default: int) -> int:
    try:
        return int(os.environ.get(name, default))
    except ValueError:
        return default


def write_whole(path: str, data: bytes) -> None:
    """Write a file so that nobody reads half of it; never raises.

    A full disk must not hide the script's own failure.
    """
    if not path:
        return
    try:
        with open(path + ".part", "wb") as file:
            file.write(data)
        os.replace(path + ".part", path)
    except OSError as error:
        print(f"gputasks: `{path}` cannot be written: {error}", file=sys.stderr)
