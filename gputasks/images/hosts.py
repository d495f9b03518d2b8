"""Where the container engine is: `DOCKER_HOST`, the docker context, the usual socket.

As the docker command decides it, since a build of ours and a `docker images` of the user's must
speak to the same engine.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from gputasks.errors import ConfigError

if TYPE_CHECKING:
    import socket

USUAL = "unix:///var/run/docker.sock"
PORT = 2375
TLS_PORT = 2376


class Address(NamedTuple):
    """A unix socket's `path`, or the `name` and `port` of a TCP one."""

    path: str = ""
    name: str = ""
    port: int = 0
    tls: bool = False

    def wrapped(self, sock: socket.socket) -> socket.socket:
        """TLS as the docker command does it: own certificate, own authority."""
        import ssl

        folder = os.environ.get("DOCKER_CERT_PATH") or _config_dir()
        context = ssl.create_default_context(cafile=os.path.join(folder, "ca.pem"))
        context.load_cert_chain(os.path.join(folder, "cert.pem"), os.path.join(folder, "key.pem"))
        return context.wrap_socket(sock, server_hostname=self.name)


def where_from() -> tuple[str, str]:
    """The engine's host, and what said so (empty for the usual socket)."""
    host = os.environ.get("DOCKER_HOST", "").strip()
    if host:
        return host, "DOCKER_HOST"
    name = os.environ.get("DOCKER_CONTEXT", "")
    source = "DOCKER_CONTEXT"
    if not name:
        name = str(_json(os.path.join(_config_dir(), "config.json")).get("currentContext") or "")
        source = "docker context"
    if name and name != "default":
        host = _context_host(name)
        if host:
            return host, source
    return USUAL, ""


def parse_host(host: str, source: str = "") -> Address:
    """The address that a host text means.

    Raises:
        ConfigError: `ssh://` and other forms that are not spoken here, or no form at all.

    """
    scheme, found, rest = host.partition("://")
    if not found and host.startswith("/"):
        scheme, found, rest = "unix", "://", host
    if found and scheme == "unix" and rest:
        return Address(path="/" + rest.lstrip("/"))
    if found and scheme in ("tcp", "http", "https") and rest:
        rest = rest.rstrip("/")
        name, _, port = rest.rpartition(":") if ":" in rest.rpartition("]")[2] else (rest, "", "")
        tls = scheme == "https" or bool(os.environ.get("DOCKER_TLS_VERIFY"))
        if not port or port.isdigit():
            return Address(
                name=name.strip("[]"), port=int(port or (TLS_PORT if tls else PORT)), tls=tls
            )
    hint = "`unix:///var/run/docker.sock` or `tcp://NAME:2375`"
    if scheme == "ssh":
        hint = (
            "forward the socket: `ssh -N -L /tmp/docker.sock:/var/run/docker.sock"
            f" {rest or 'NODE'}`, then `DOCKER_HOST=unix:///tmp/docker.sock`"
        )
    raise ConfigError(
        f"no container engine can be reached at `{host}`", place=source and f"${source}", hint=hint
    )


def _config_dir() -> str:
    return os.environ.get("DOCKER_CONFIG") or os.path.expanduser("~/.docker")


def _context_host(name: str) -> str:
    from hashlib import sha256

    folder = os.path.join(_config_dir(), "contexts", "meta", sha256(name.encode()).hexdigest())
    endpoints = _json(os.path.join(folder, "meta.json")).get("Endpoints")
    docker = endpoints.get("docker") if isinstance(endpoints, dict) else None
    return str(docker.get("Host") or "") if isinstance(docker, dict) else ""


def _json(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            value = json.loads(file.read())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
