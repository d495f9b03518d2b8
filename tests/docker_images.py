"""A Docker engine for tests: is there one, a base of two megabytes, tidying up by label."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import tarfile

from gputasks.images.engine import Engine, answers

TINY = "gputasks-test/tiny:1"
"""A shell and a few programs of this machine."""
BASE = "gputasks-test/base:bookworm"
"""Debian with Python, made by `.ci/run`."""

_PROGRAMS = ("sh", "cat", "ls", "sleep", "true", "chmod", "mkdir", "touch")


def engine_or_reason() -> Engine | str:
    if not answers():
        return "no container engine answers: `apt install docker.io` and start dockerd"
    return Engine()


def make_tiny() -> None:
    if Engine().inspect_image(TINY) is None:
        import_image(TINY, {})


def import_image(ref: str, more: dict[str, bytes]) -> None:
    """`docker import` of a root with a shell and further files."""
    files = {f"bin/{name}": os.path.realpath(str(shutil.which(name))) for name in _PROGRAMS}
    for path in list(files.values()):
        listed = subprocess.run(["ldd", path], capture_output=True, text=True).stdout
        for library in re.findall(r"(/\S+\.so\S*) \(", listed):
            files[library.lstrip("/")] = os.path.realpath(library)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in ("tmp", "etc", "proc", "dev", "sys"):
            info = tarfile.TarInfo(name)
            info.type, info.mode = tarfile.DIRTYPE, 0o1777
            tar.addfile(info)
        for name, path in sorted(files.items()):
            tar.add(path, name, recursive=False)
        for name, data in more.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    argv = ["docker", "import", "--change", "ENV PATH=/bin", "-", ref]
    subprocess.run(argv, input=buffer.getvalue(), check=True, capture_output=True)


def remove_images(name: str) -> None:
    """All images that a test built under a name."""
    listed = subprocess.run(
        ["docker", "images", "-aq", "--filter", f"label=io.gputasks.image={name}"],
        capture_output=True, text=True,
    ).stdout.split()  # fmt: skip
    if listed:
        subprocess.run(["docker", "rmi", "-f", *dict.fromkeys(listed)], capture_output=True)
