"""One command of an installer, under a guard, its output in a log without secrets."""

from __future__ import annotations

import os
import threading
from collections import deque
from typing import TYPE_CHECKING

from gputasks.proc import Guarded, Start, interrupts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gputasks.environments.credentials import Credentials
    from gputasks.environments.environment import Environment

TICK_S = 0.05
GRACE_S = 5.0
"""An installer has nothing to save."""

_SHOWN = 12


class Log:
    """Takes the output of commands through a pipe, so that no secret reaches the disk."""

    def __init__(self, path: str, credentials: Credentials) -> None:
        self._credentials = credentials
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115  `close` closes it
        self._lines: deque[str] = deque(maxlen=200)

    def close(self) -> None:
        """No more will come."""
        self._file.close()

    def take(self, reader: int) -> None:
        """Copy a pipe until all its writers are gone."""
        with os.fdopen(reader, "rb") as pipe:
            for line in pipe:
                self.put(line.decode("utf-8", "replace").rstrip())

    def put(self, line: str) -> None:
        """One line."""
        line = self._credentials.hide(line)
        self._lines.append(line)
        self._file.write(f"{line}\n".encode())

    def telling(self) -> list[str]:
        """The last lines; from the first error on, where one is marked."""
        lines = [line[:500] for line in self._lines if line.strip()]
        marked = [
            n for n, t in enumerate(lines) if t.lstrip().lower().startswith(("error", "\xd7"))
        ]
        return lines[marked[0] :][:_SHOWN] if marked else lines[-_SHOWN:]


def run_step(
    argv: Sequence[str],
    env: Mapping[str, str],
    environment: Environment,
    log: Log,
    *,
    lock: int,
    tick: Callable[[], None],
) -> int:
    """Run one command to its end, or to that of a signal's patience; its exit code.

    Args:
        argv: holds no secret.
        env: its whole environment.
        environment: what it makes: its folder marks every process.
        log: where its output goes.
        lock: held until the last process is gone.
        tick: called several times a second.

    Raises:
        OSError: no process can be made.

    """
    log.put(f"$ {' '.join(argv)}")
    reader, writer = os.pipe()
    copier = threading.Thread(target=log.take, args=(reader,), daemon=True)
    with interrupts.deferred():
        try:
            guard = Guarded.start(
                Start(
                    argv=argv,
                    env=env,
                    cwd=os.path.dirname(environment.folder),
                    output=f"/proc/self/fd/{writer}",
                    mark=environment.folder,
                    grace_s=GRACE_S,
                    keep_fds=(lock, writer),
                )
            )
        except BaseException:
            os.close(reader)
            raise
        finally:
            os.close(writer)
        copier.start()
        ended = None
        while ended is None:
            ended = guard.wait(TICK_S)
            tick()
            if interrupts.urgent:
                guard.kill()
            elif interrupts.requested is not None:
                guard.stop()
        copier.join()
    if ended.error:
        log.put(f"error: {ended.error}")
    return ended.returncode
