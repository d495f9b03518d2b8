"""Making an environment, once, whoever asks: under a lock, with a mark that is set last.

Virtual environments hold their own absolute path, so they are made where they will be, and one
without `ready.json` is removed and made again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from typing import TYPE_CHECKING

from gputasks.environments.credentials import Credentials
from gputasks.environments.environment import FORMAT, READY, USED
from gputasks.environments.installers import Installer
from gputasks.environments.steps import Log, run_step
from gputasks.errors import MachineError
from gputasks.layout import write_json, write_whole
from gputasks.leases.flock import (
    clear_owner,
    describe,
    open_lock,
    read_owner,
    try_lock,
    write_owner,
)
from gputasks.proc import Interrupted, interrupts, sweep_mark

if TYPE_CHECKING:
    from collections.abc import Callable

    from gputasks.environments.environment import Environment

POLL_S = 0.2


class Held:
    """An environment that is there, and that nobody removes while this is held.

    Attributes:
        environment: which one.
        fds: to be kept open by what runs in it.

    """

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.fds: tuple[int, ...] = ()
        # An environment of somebody else's, which cannot be written, cannot be removed by us.
        with contextlib.suppress(OSError):
            path = os.path.join(environment.folder, USED)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            os.utime(fd)
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            self.fds = (fd,)

    def release(self) -> None:
        """It may be removed as far as we are concerned."""
        for fd in self.fds:
            os.close(fd)
        self.fds = ()


def ensure(
    environment: Environment,
    *,
    task: str,
    log: str,
    say: Callable[[str, str], None],
    tick: Callable[[], None] = lambda: None,
) -> Held:
    """Make an environment unless it is there, and hold it.

    Args:
        environment: what is wanted.
        task: for whom, in messages.
        log: file for the output of the installer.
        say: told what happens: the kind of event, and a text.
        tick: called several times a second.

    Raises:
        MachineError: it cannot be made; nothing of it is left.
        ConfigError: two secrets for one index.
        Interrupted: a signal ended it; nothing of it is left.

    """
    try:
        os.makedirs(os.path.dirname(environment.folder), exist_ok=True)
        fd = open_lock(environment.lock)
    except OSError as error:
        if environment.ready():
            return Held(environment)
        raise MachineError(
            f"cannot write the environment of `{task}`: {error.strerror}: `{error.filename}`"
        ) from error
    try:
        _wait(fd, say, tick)
        if not environment.ready():
            write_owner(fd, task=task)
            _make(environment, fd, task=task, log=log, say=say, tick=tick)
            clear_owner(fd)
        return Held(environment)
    finally:
        os.close(fd)


def _wait(fd: int, say: Callable[[str, str], None], tick: Callable[[], None]) -> None:
    said = False
    while not try_lock(fd):
        if not said:
            said = True
            say("waiting", f"its environment is being made by {describe(read_owner(fd))}")
        if interrupts.requested is not None:
            raise Interrupted(interrupts.requested)
        tick()
        time.sleep(POLL_S)


def _make(
    environment: Environment,
    lock: int,
    *,
    task: str,
    log: str,
    say: Callable[[str, str], None],
    tick: Callable[[], None],
) -> None:
    wanted = environment.requirements
    credentials = Credentials(wanted.secret_urls, os.environ, environment.root)
    installer = Installer(environment, credentials.environ)
    credentials.check(version=environment.base.version, uv=bool(installer.uv))
    clear(environment)
    folder = os.path.dirname(log)
    files = (f"{environment.folder}.requirements.txt", f"{environment.folder}.constraints.txt")
    count = sum(not line.startswith("-") or line.startswith("-e ") for line in wanted.lines)
    what = (
        f"{count} requirement{'s' if count != 1 else ''} with {installer.name}, " if count else ""
    )
    say("phase", f"makes its environment: {what}Python {environment.base.version}")
    began = time.monotonic()
    try:
        os.makedirs(folder, exist_ok=True)
        steps = [installer.make()]
        if wanted.install:
            steps.append(installer.install(*files))
        for path, lines in zip(files, (wanted.install, wanted.constraints), strict=True):
            write_whole(path, "".join(f"{t}\n" for t in lines).encode(), sync=False)
        with (
            credentials.netrc(f"{environment.folder}.netrc") as more,
            contextlib.closing(Log(log, credentials)) as out,
        ):
            for argv in steps:
                code = run_step(argv, installer.env | more, environment, out, lock=lock, tick=tick)
                if interrupts.requested is not None:
                    raise Interrupted(interrupts.requested)
                if code != 0:
                    raise _failure(task, installer, code, out, log)
        _finish(environment, installer, round(time.monotonic() - began, 3))
    except OSError as error:
        raise MachineError(
            f"the environment of `{task}` could not be made: {error.strerror or error}",
            facts=[f"at: {error.filename}"] if error.filename else [],
        ) from error
    finally:
        for path in files:
            with contextlib.suppress(OSError):
                os.unlink(path)
        if not environment.ready():
            clear(environment)


def _failure(task: str, installer: Installer, code: int, out: Log, log: str) -> MachineError:
    lines = out.telling()
    return MachineError(
        f"the environment of `{task}` could not be made: {installer.name} ended with code {code}",
        facts=[
            *(["last lines:", *(f"  {line}" for line in lines)] if lines else []),
            f"log: {os.path.relpath(log)}",
        ],
    )


def _finish(environment: Environment, installer: Installer, took: float) -> None:
    """Set the mark."""
    wanted = environment.requirements
    write_json(
        os.path.join(environment.folder, READY),
        {
            "format": FORMAT,
            "folder": os.path.realpath(environment.folder),
            "python": environment.base.executable,
            "version": environment.base.version,
            "requirements": list(wanted.lines),
            "installer": installer.name,
            "packages": dict(environment.interpreter().packages),
            "made": time.time(),
            "duration_s": took,
        },
    )


def clear(environment: Environment) -> None:
    """Remove what is there of it, and what still writes into it: both guards may be dead."""
    if os.path.lexists(environment.folder):
        sweep_mark(environment.folder)
        shutil.rmtree(environment.folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        os.unlink(f"{environment.folder}.netrc")
