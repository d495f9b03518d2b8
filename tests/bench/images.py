"""What must hold of images: a no-op with a large context, and memory while it is sent."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from measure import PYTHON, Row, environ, in_turns, run, write

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import docker_images

FILES, EACH = 2000, 250_000
ALLOWED_S = 0.060

DODO = """
import gputasks as gt
DOIT_CONFIG = gt.doit_config()
def task_image():
    return gt.build(gt.Image("{name}", dockerfile="Dockerfile", build_context_root="{root}", verify="none"))
"""
BARE = """
DOIT_CONFIG = {"backend": "sqlite3", "dep_file": "doit.db", "verbosity": 0}
def task_image():
    return {"actions": [["cp", "Dockerfile", "out"]], "file_dep": ["Dockerfile"], "targets": ["out"]}
"""


@contextmanager
def image(folder: Path, *, root: str = "context") -> Iterator[str]:
    """A project with a context of 500 MB; its images go at the end."""
    name = f"bench-{os.getpid()}"
    docker_images.make_tiny()
    write(folder, "Dockerfile", f"FROM {docker_images.TINY}\nCOPY . /data\n")
    write(folder, "dodo.py", DODO.format(name=name, root=root))
    write(folder / "small", "train.py", "print(1)\n")
    (folder / "context").mkdir(parents=True, exist_ok=True)
    for i in range(FILES):
        (folder / "context" / f"{i:04d}.bin").write_bytes(os.urandom(1000) * (EACH // 1000))
    try:
        yield name
    finally:
        docker_images.remove_images(name)


def missing() -> str:
    """Why there is nothing to measure, or nothing."""
    found = docker_images.engine_or_reason()
    return found if isinstance(found, str) else ""


def bench_image_noop(folder: Path) -> Row | str:
    if why := missing():
        return why
    with image(folder):
        doit = [PYTHON, "-m", "doit"]
        write(folder / "bare", "dodo.py", BARE)
        write(folder / "bare", "Dockerfile", "FROM x\n")
        run([*doit, "image"], folder)
        bare, ours = in_turns(
            15, lambda: run(doit, folder / "bare"), lambda: run([*doit, "image"], folder)
        )
    added = ours - bare
    return Row(
        "no-op of an image, 500 MB in 2,000 files, over bare doit",
        f"+{added * 1e3:.0f} ms",
        f"{ALLOWED_S * 1e3:.0f} ms allowed",
        added / ALLOWED_S,
        1.0,
    )


def bench_image_cached(folder: Path) -> Row | str:
    if why := missing():
        return why
    with image(folder) as name:
        doit = [PYTHON, "-m", "doit", "image"]
        run(doit, folder)
        write(folder / "bare", "dodo.py", BARE)
        write(folder / "bare", "Dockerfile", "FROM x\n")
        build = ["docker", "build", "-q", "-t", f"{name}-cli", "-f", "Dockerfile", "context"]
        bare, ours, docker = in_turns(
            3,
            lambda: run([PYTHON, "-m", "doit"], folder / "bare"),
            lambda: run(doit, folder),
            lambda: run(build, folder),
        )
        subprocess.run(["docker", "rmi", "-f", f"{name}-cli"], capture_output=True)
    # Both decide whether to build; the start of doit, which decides nothing, counts for neither.
    return Row(
        "no-op of an image over bare doit, against `docker build` with all layers cached",
        f"+{(ours - bare) * 1e3:.0f} of {ours * 1e3:.0f} ms",
        f"{docker * 1e3:.0f} ms",
        (ours - bare) / docker,
        0.05,
    )


def peak_kib(folder: Path) -> int:
    """Highest resident memory of a doit that builds."""
    code = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    argv = [PYTHON, "-c", code, PYTHON, "-m", "doit", "-a", "image"]
    done = subprocess.run(
        argv, cwd=folder, env=environ(), check=True, capture_output=True, text=True
    )
    return int(done.stdout.split()[-1])


def bench_image_memory(folder: Path) -> Row | str:
    if why := missing():
        return why
    with image(folder, root="small") as name:
        small = peak_kib(folder)
        write(folder, "dodo.py", DODO.format(name=name, root="context"))
        large = peak_kib(folder)
    return Row(
        "memory while 500 MB are sent to the builder, against 10 bytes",
        f"{large / 1024:.0f} MiB",
        f"{small / 1024:.0f} MiB",
        large / small,
        1.25,
    )
