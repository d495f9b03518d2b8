"""The Dockerfile of an image that was described instead of written, and the files it needs.

What changes seldom comes first: base, system packages, installer, the gigabytes of the framework,
other packages, variables and commands, files.  An edit then makes anew only what comes after it.
It is never written into the user's tree: it goes into the tar that the builder gets, beside the
user's files and not among them.
"""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gputasks.images.requirements import Requirements
    from gputasks.specs import Image

VERSION = 1
"""Part of each image's digest: another way to write the Dockerfile is another image."""

OURS = "gputasks"
FILES = "files"
"""Folders of the tar: what we made, what is the user's."""

_AT = "/tmp/gputasks"  # noqa: S108  a folder in the image
_KNOWN_SECRETS = {"pip.conf": "PIP_CONFIG_FILE", "uv.toml": "UV_CONFIG_FILE", "netrc": "NETRC"}


class Recipe(NamedTuple):
    """The text of a Dockerfile, and files of ours by their path in the tar."""

    text: str
    files: dict[str, bytes]


def recipe(image: Image, parent: str, requirements: Requirements) -> Recipe:
    """The Dockerfile of an image.

    Args:
        image: what it is to hold.
        parent: what it starts from.
        requirements: its Python packages, read.

    """
    files = dict(_requirement_files(requirements))
    lines = [f"FROM {parent}"]
    if image.apt_packages:
        packages = " ".join(shlex.quote(p) for p in sorted(set(image.apt_packages)))
        lines.append(
            "RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y"
            f" --no-install-recommends {packages} && rm -rf /var/lib/apt/lists/*"
        )
    mounts = "".join(f"--mount=type=secret,id={name} " for name in sorted(image.secrets))
    if files:
        lines += _installs(image, files, mounts)
    lines += [f"ENV {name}={_env(value)}" for name, value in image.environment.items()]
    if image.workdir:
        lines.append(f"WORKDIR {image.workdir}")
    for command in image.run:
        shell = command if "\n" not in command.strip() else ""
        lines.append(f"RUN {mounts}{shell or json.dumps(['/bin/sh', '-ec', command])}")
    owner = f"--chown={image.user} " if image.user else ""
    for source, target in image.copy.items():
        place = FILES if source == "." else f"{FILES}/{source}"
        lines.append(f"COPY {owner}{json.dumps([place, target])}")
    if image.user:
        lines.append(f"USER {image.user}")
    return Recipe("\n".join(lines) + "\n", files)


def _requirement_files(requirements: Requirements) -> Iterator[tuple[str, bytes]]:
    def text(*parts: tuple[str, ...]) -> bytes:
        return "".join(f"{line}\n" for part in parts for line in part).encode()

    if requirements.packages:
        named = (f"-c {_AT}/constraints.txt",) if requirements.constraints else ()
        heavy = requirements.heavy
        if heavy:
            yield f"{OURS}/frameworks.txt", text(requirements.options, named, heavy)
        if requirements.packages != heavy:
            packages = text(requirements.options, named, requirements.packages)
            yield f"{OURS}/requirements.txt", packages
        if named:
            yield f"{OURS}/constraints.txt", text(requirements.constraints)


def _installs(image: Image, files: dict[str, bytes], mounts: str) -> Iterator[str]:
    options = [f"--{k}" if v is None else f"--{k}={shlex.quote(v)}"
               for k, v in image.python_package_installer_args.items()]  # fmt: skip
    flags = ["--index-url", "--extra-index-url"]
    index = [f"{flags[min(i, 1)]} {shlex.quote(u)}" for i, u in enumerate(image.index_urls)]
    variables = "".join(
        f"{_KNOWN_SECRETS[n]}=/run/secrets/{n} " for n in sorted(image.secrets)
        if n in _KNOWN_SECRETS
    )  # fmt: skip
    if image.python_package_installer == "uv":
        breaking = [o for o in options if o == "--break-system-packages"]
        words = " ".join(["python3 -m pip install --no-cache-dir", *breaking, *index, "uv"])
        yield f"RUN {mounts}command -v uv || {variables}{words}"
        install = " ".join([f"{variables}uv pip install --no-cache", *options, *index])
    else:
        install = " ".join([f"{variables}python3 -m pip install --no-cache-dir", *options, *index])
    if f"{OURS}/constraints.txt" in files:
        yield f"COPY {OURS}/constraints.txt {_AT}/"
    for name in ("frameworks.txt", "requirements.txt"):
        if f"{OURS}/{name}" in files:
            yield f"COPY {OURS}/{name} {_AT}/"
            yield f"RUN {mounts}{install} -r {_AT}/{name}"


def _env(value: str) -> str:
    """A value in double quotes in which nothing is expanded."""
    for char in '\\"$':
        value = value.replace(char, "\\" + char)
    return f'"{value}"'
