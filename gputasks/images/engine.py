"""Questions to a container engine, over its socket, with the standard library only.

An image that is up to date costs one such question, so neither docker-py (0.2 s to import) nor
`http.client` (0.03 s) may be needed for it: HTTP/1.0 over a socket is a page of code, and the
engine then never answers in chunks.  Builds and runs stream, and are docker-py's.
"""

from __future__ import annotations

import contextlib
import errno
import json
import socket
from typing import Any

from gputasks.errors import MachineError
from gputasks.images.hosts import USUAL, Address, parse_host, where_from

TIMEOUT_S = 60.0
MISSING = 404


class EngineDownError(MachineError):
    """No engine answers: there is none, it may not be used, or `DOCKER_HOST` leads elsewhere."""


class EngineAnswerError(MachineError):
    """The engine answered that it will not; `status` is its HTTP status."""

    status = 0


class Engine:
    """One container engine: Docker, or podman's service.

    Args:
        host: as in `DOCKER_HOST`, `unix:///run/docker.sock` or `tcp://10.0.0.5:2375`; by default
            what `DOCKER_HOST` or the docker context says, else the usual socket.
        timeout_s: how long one answer may take.

    Raises:
        ConfigError: a host of a form that is not spoken here.

    """

    def __init__(self, host: str | None = None, *, timeout_s: float = TIMEOUT_S) -> None:
        self.host, self.source = (host, "") if host else where_from()
        self.timeout_s = timeout_s
        self.address: Address = parse_host(self.host, self.source)

    # -- requests ------------------------------------------------------------------------------

    def get(self, path: str) -> Any:
        """The answer to GET, as JSON.

        Raises:
            MachineError: nobody answers, or the answer is a refusal.

        """
        return self._asked("GET", path)

    def post(self, path: str, body: Any = None) -> Any:
        """The answer to POST of a JSON body; None when there is nothing in it.

        Raises:
            MachineError: nobody answers, or the answer is a refusal.

        """
        return self._asked("POST", path, body)

    def delete(self, path: str) -> Any:
        """The answer to DELETE.

        Raises:
            MachineError: nobody answers, or the answer is a refusal.

        """
        return self._asked("DELETE", path)

    def _asked(self, method: str, path: str, body: Any = None) -> Any:
        status, value = self.request(method, path, body)
        if status >= 400:
            said = value.get("message", "") if isinstance(value, dict) else str(value or "")
            error = EngineAnswerError(
                f"the container engine refused {method} `{path.partition('?')[0]}`:"
                f" {' '.join(said.split())[:300] or f'status {status}'}",
                facts=[f"engine: {self.host}"],
            )
            error.status = status
            raise error
        return value

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and parsed answer, whatever the status.

        Raises:
            EngineDownError: nobody answers, or not in HTTP.

        """
        data = b"" if body is None else json.dumps(body).encode()
        kind = "Content-Type: application/json\r\n" if body is not None else ""
        head = (
            f"{method} {path} HTTP/1.0\r\nHost: docker\r\n{kind}Content-Length: {len(data)}\r\n\r\n"
        )
        answer = self._exchange(head.encode() + data)
        first, _, rest = answer.partition(b"\r\n")
        words = first.split(None, 2)
        if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
            raise self._down("what answers is no container engine")
        text = rest.partition(b"\r\n\r\n")[2].strip()
        try:
            value = json.loads(text) if text else None
        except ValueError:
            value = text.decode("utf-8", "replace")
        return int(words[1]), value

    def _exchange(self, data: bytes) -> bytes:
        parts = []
        try:
            with self._connect() as sock:
                sock.sendall(data)
                while part := sock.recv(65536):
                    parts.append(part)
        except OSError as error:
            raise self._down(*self._why(error)) from None
        return b"".join(parts)

    def _connect(self) -> socket.socket:
        address = self.address
        if address.path:
            sock = socket.socket(socket.AF_UNIX)
            try:
                sock.settimeout(self.timeout_s)
                sock.connect(address.path)
            except BaseException:
                sock.close()
                raise
            return sock
        sock = socket.create_connection((address.name, address.port), self.timeout_s)
        if not address.tls:
            return sock
        try:
            return address.wrapped(sock)
        except BaseException:
            sock.close()
            raise

    # -- what went wrong -----------------------------------------------------------------------

    def _why(self, error: OSError) -> tuple[str, str]:
        path = self.address.path
        if isinstance(error, PermissionError):
            hint = "`sudo usermod -aG docker $USER`, then log in again; or rootless Docker"
            return f"no permission for `{path or self.host}`", hint
        if isinstance(error, TimeoutError):
            return f"no answer within {self.timeout_s:g} s", ""
        if path and error.errno == errno.ENOTSOCK:
            return f"`{path}` is no socket", ""
        if path and error.errno == errno.ENOENT:
            return f"there is no `{path}`", ""
        return (error.strerror or str(error)).lower(), ""

    def _down(self, why: str, hint: str = "") -> EngineDownError:
        if self.host != USUAL:
            told = f" (from `{self.source}`)" if self.source else ""
            hint = hint or f"`docker -H {self.host} version` tries it"
            return EngineDownError(f"no container engine at `{self.host}`{told}: {why}", hint=hint)
        hint = hint or "start it (`systemctl start docker`), or install it: `apt install docker.io`"
        return EngineDownError(f"no container engine: {why}", hint=hint)

    # -- the questions we have -----------------------------------------------------------------

    def ping(self) -> None:
        """Nothing, when an engine answers.

        Raises:
            MachineError: none does.

        """
        status, text = self.request("GET", "/_ping")
        if status != 200 or text != "OK":
            raise self._down("what answers is no container engine")

    def version(self) -> dict[str, Any]:
        """What `docker version` tells of the server."""
        return self._dict(self.get("/version"))

    def info(self) -> dict[str, Any]:
        """What `docker info` tells."""
        return self._dict(self.get("/info"))

    def is_podman(self) -> bool:
        """True for podman's service, which speaks the same language with an accent."""
        parts = self.version().get("Components") or [{}]
        return bool(parts[0].get("Name") == "Podman Engine")

    def inspect_image(self, ref: str) -> dict[str, Any] | None:
        """What is known of an image by tag, digest or id; None when it is not there.

        Raises:
            MachineError: nobody answers, or the answer is a refusal.

        """
        try:
            return self._dict(self.get(f"/images/{quoted(ref)}/json"))
        except EngineAnswerError as error:
            if error.status == MISSING:
                return None
            raise

    def tag(self, ref: str, repository: str, tag: str) -> None:
        """Give an image one more name.

        Raises:
            MachineError: nobody answers, or there is no such image.

        """
        self.post(f"/images/{quoted(ref)}/tag?repo={quoted(repository)}&tag={quoted(tag)}")

    def _dict(self, value: Any) -> dict[str, Any]:
        if isinstance(value, dict):
            return value
        raise self._down("what answers is no container engine")


def quoted(text: str) -> str:
    """A name in a URL.  References hold `/`, `:` and `@`, which paths may hold too."""
    if text.isascii() and not any(c in text for c in ' %?#+&\\"<>{}|^`'):
        return text
    from urllib.parse import quote

    return quote(text, safe="/:@")


def answers(host: str | None = None) -> bool:
    """True when an engine answers now."""
    with contextlib.suppress(MachineError):
        Engine(host, timeout_s=5).ping()
        return True
    return False
