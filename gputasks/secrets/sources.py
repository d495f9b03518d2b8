"""Where secrets come from: the shell's variables, a file that only its owner reads, a command."""

from __future__ import annotations

import os
import shlex
import stat
from typing import TYPE_CHECKING

from gputasks.errors import ConfigError, MachineError, raise_all
from gputasks.proc import run_text
from gputasks.settings.environment import is_name
from gputasks.settings.secrets import read_table
from gputasks.settings.toml import parse_toml

if TYPE_CHECKING:
    from collections.abc import Mapping

COMMAND_S = 60.0
"""A password manager may ask its user first."""


class Sources:
    """The three of them, for one project.

    Args:
        folder: of dodo.py.
        environ: the caller's environment.

    Raises:
        MachineError: the file cannot be read, or others can.
        ConfigError: the table or the file is faulty.

    """

    def __init__(self, folder: str, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._folder = folder
        table = read_table(folder)
        self._commands = table.commands
        self._file = os.path.expanduser(table.file) if table.file else default_file(environ)
        self._file = os.path.join(folder, self._file)
        self.file_shown = table.file or _short(self._file)
        # Where the shell has all variables, as a CI's has, no file need be there.
        there = os.path.lexists(self._file)
        self._values = read_file(self._file, self.file_shown) if there else {}
        self.file_missing = bool(table.file) and not there
        self.failed: dict[str, str] = {}

    @property
    def names(self) -> set[str]:
        """Of all secrets that are configured, whoever needs them."""
        return {*self._values, *self._commands}

    def value(self, name: str) -> str | None:
        """The value of a secret; None where there is none, with `failed` where a command failed.

        An empty value is none.
        """
        found = self._environ.get(name) or self._values.get(name)
        if found or name not in self._commands:
            return found
        return self._ask(name, self._commands[name])

    def _ask(self, name: str, argv: tuple[str, ...]) -> str | None:
        done = run_text(argv, timeout_s=COMMAND_S, env=self._environ, cwd=self._folder)
        value = done.out.removesuffix("\n")
        shown = shlex.join(argv)
        said = next((line.strip() for line in reversed(done.err.splitlines()) if line.strip()), "")
        if done.returncode:
            how = f"failed with code {done.returncode}"
            if done.returncode < 0:
                how = f"was killed by signal {-done.returncode}"
            self.failed[name] = f"`{name}`: `{shown}` {how}" + (f": {said}" if said else "")
        elif "\0" in value or "\ufffd" in value:
            self.failed[name] = f"`{name}`: `{shown}` gave bytes that no variable can hold"
        elif not value:
            self.failed[name] = f"`{name}`: `{shown}` gave nothing"
        else:
            return value
        return None


def default_file(environ: Mapping[str, str]) -> str:
    """`~/.config/gputasks/secrets.toml`, or where XDG_CONFIG_HOME says, if that is absolute."""
    base = environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(base):
        base = os.path.expanduser("~/.config")
    return os.path.join(base, "gputasks", "secrets.toml")


def read_file(path: str, shown: str) -> dict[str, str]:
    """The secrets of a file.

    Raises:
        MachineError: it is no regular file of this user's that nobody else can read.
        ConfigError: it is no TOML of names and texts.

    """
    try:
        # Not blocking: whatever it is, it is looked at before it is read.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise MachineError(
            f"the secrets file `{shown}` cannot be read: {(error.strerror or '').lower()}",
            hint=f"`ls -l {shown}`",
        ) from None
    try:
        _check_mode(os.fstat(fd), shown)
        with open(fd, "rb", closefd=False) as file:
            raw = file.read()
    finally:
        os.close(fd)
    document = parse_toml(shown, raw)
    faults = []
    for name, value in document.data.items():
        place = document.place((name,))
        if not is_name(name):
            hint = "letters, digits and `_`, not starting with a digit"
            faults.append(ConfigError(f"`{name}` is no name of a secret", place=place, hint=hint))
        elif not isinstance(value, str):
            # Not shown: it may be one all the same.
            faults.append(ConfigError(f"secret `{name}` must be a text", place=place))
        elif "\0" in value:
            fault = f"secret `{name}` holds a NUL byte, which no variable can carry"
            faults.append(ConfigError(fault, place=place))
    raise_all(faults)
    return dict(document.data)


def _check_mode(info: os.stat_result, shown: str) -> None:
    if not stat.S_ISREG(info.st_mode):
        raise MachineError(f"the secrets file `{shown}` is no regular file")
    if info.st_uid != os.geteuid():
        raise MachineError(
            f"the secrets file `{shown}` belongs to another user (uid {info.st_uid})",
            hint="keep one of your own, and name it by `file` in `[secrets]`",
        )
    mode = stat.S_IMODE(info.st_mode)
    if mode & 0o077:
        raise MachineError(
            f"the secrets file `{shown}` has mode {mode:04o}: others may read or change it",
            hint=f"`chmod 600 {shown}`",
        )


def _short(path: str) -> str:
    home = os.path.expanduser("~") + os.sep
    return "~/" + path.removeprefix(home) if path.startswith(home) else path
