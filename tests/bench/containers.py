"""What it costs to run in a container: with and without an image, and `docker run`, in turns."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from measure import PYTHON, Row, in_turns, run, write

IMAGE = os.environ.get("GPUTASKS_BENCH_IMAGE", "gputasks-test/base:bookworm")
ALLOWED_S = 0.1
"""Beyond what `docker run` itself takes: 0.2 s where nothing else runs, so 0.3 s in all."""


def bench_container(folder: Path) -> Row:
    """From `doit` to its end, of a command that does nothing and always runs."""
    seen = subprocess.run(["docker", "image", "inspect", IMAGE], capture_output=True, check=False)
    if seen.returncode:
        return Row(f"skipped: no engine has `{IMAGE}`", "-", "-", 0.0, 1.0)
    write(
        folder,
        "dodo.py",
        f"""\
        import gputasks as gt
        DOIT_CONFIG = gt.doit_config()
        def task_host():
            return gt.command(["true"])
        def task_inside():
            return gt.command(["true"], image={IMAGE!r})
        """,
    )
    docker = ["docker", "run", "--rm", "--init", "--network", "host", IMAGE, "true"]
    inside, host, plain = in_turns(
        7,
        lambda: run([PYTHON, "-m", "doit", "inside"], folder),
        lambda: run([PYTHON, "-m", "doit", "host"], folder),
        lambda: run(docker, folder),
    )
    return Row(
        f"an image adds to a command what `docker run` takes, and {ALLOWED_S:g} s",
        f"+{(inside - host) * 1000:.0f} ms",
        f"{plain * 1000:.0f} ms",
        (inside - host) / (plain + ALLOWED_S),
        1.0,
    )
