"""Secrets of package indexes, for the time of an installation.

They go into a netrc file that only this user can read, since pip passes URLs of indexes on to the
processes that it starts, and `ps` shows command lines.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING
from urllib.parse import unquote

from gputasks import secrets
from gputasks.checks.requirements import split_index
from gputasks.errors import ConfigError, MachineError
from gputasks.settings.environment import secret_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


class Credentials:
    """What the indexes of an environment ask for.

    Args:
        urls: of indexes, with references to secrets.
        environ: the caller's variables.
        folder: of dodo.py, beside which the sources of secrets are configured.

    Raises:
        MachineError: a secret has no value, or none that such a file can hold.
        ConfigError: two indexes of one host with different secrets.

    """

    def __init__(self, urls: Sequence[str], environ: Mapping[str, str], folder: str) -> None:
        self._logins: dict[str, tuple[str, str]] = {}
        parts = {(url, n): part for url in urls for n, part in enumerate(split_index(url)[1:])}
        # The keys are what an error names: the URL as it was declared.
        wanted = {f"{url}{' ' * n}": part for (url, n), part in parts.items() if secret_names(part)}
        self.secrets = secrets.resolve(wanted, environ, folder)
        found = self.secrets.env
        names = {n for text in wanted.values() for n in secret_names(text)}
        # What builds a package needs no secret of ours.
        self.environ = {k: v for k, v in self.secrets.environ.items() if k not in names}
        """The caller's variables that an installer may have."""
        for url in urls:
            user, password = (
                found.get(f"{url}{' ' * n}", unquote(parts[url, n])) for n in range(2)
            )
            self._login(split_index(url)[0], user, password)
        for key, value in found.items():
            if not value.isprintable() or any(c in ' \\"#' for c in value):
                raise MachineError(
                    f"secret `{wanted[key]}` holds a space, a quote, a backslash or `#`",
                    facts=["installers read it from a netrc file, which cannot carry these"],
                )

    def _login(self, url: str, user: str, password: str) -> None:
        host = url.partition("://")[2].partition("/")[0].partition(":")[0]
        login = (user, password)
        if self._logins.setdefault(host, login) != login:
            raise ConfigError(f"two indexes on `{host}` have different secrets")

    def check(self, *, version: str, uv: bool) -> None:
        """The installer can use them.

        Raises:
            MachineError: a token without a password, on a Python that cannot read such a netrc.

        """
        if uv or all(password for _, password in self._logins.values()):
            return
        major, minor = version.split(".")[:2]
        if (int(major), int(minor)) < (3, 11):
            raise MachineError(
                f"pip on Python {version} cannot take a token without a password from a file",
                hint="`https://__token__:${secrets.NAME}@host/simple`, or install uv",
            )

    @contextlib.contextmanager
    def netrc(self, path: str) -> Iterator[dict[str, str]]:
        """The variables that lead an installer to the secrets; the file is there meanwhile.

        Raises:
            OSError: the file cannot be written.

        """
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # of a process that was killed
        if not self._logins:
            yield {}
            return
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(fd, "w", encoding="utf-8") as file:
                file.write(_foreign())
                for host, (user, password) in self._logins.items():
                    tail = f" password {password}" if password else ""
                    file.write(f"machine {host} login {user}{tail}\n")
            yield {"NETRC": path}
        finally:
            os.unlink(path)

    def hide(self, text: str) -> str:
        """A line of output without secrets."""
        return str(self.secrets.hide(text))


def _foreign() -> str:
    """The user's own netrc, which ours would hide from the installer."""
    import netrc

    path = os.environ.get("NETRC") or os.path.expanduser("~/.netrc")
    try:
        netrc.netrc(path)
        with open(path, encoding="utf-8") as file:
            return file.read().rstrip("\n") + "\n\n"
    except (OSError, ValueError, netrc.NetrcParseError):
        return ""
