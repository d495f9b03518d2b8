"""What must hold of the cache: restoring costs a copy, storing costs the task nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

from measure import PYTHON, Row, environ, in_turns, write

from gputasks.cache import Cache, Entry
from gputasks.fingerprint.hashing import file_digest
from gputasks.layout import Layout

GB = 10**9


def large(path: Path, size: int) -> None:
    block = os.urandom(1 << 24)
    with open(path, "wb") as file:
        file.writelines(block[i:] + block[:i] for i in range(size >> 24))


def bench_restore(folder: Path) -> Row:
    source = folder / "model.bin"
    large(source, 2 * GB)
    digest = file_digest(str(source))
    cache = Cache(str(folder / "cache"), cap=100 * GB, floor=0)
    receipt = {"outputs": {"model": {"path": "model.bin", "digest": digest}}}
    entry = Entry("blake3:00", "train", "abcd", 0.0, receipt)
    assert cache.store(entry, [("model", str(source), digest)], Layout(str(folder)))
    found = cache.find("blake3:00")
    assert found is not None
    source.unlink()

    def timed(work) -> float:
        for name in ("a", "b"):
            shutil.rmtree(folder / name, ignore_errors=True)
        os.sync()
        began = time.perf_counter()
        work()
        return time.perf_counter() - began

    copy = ["cp", "--reflink=auto", cache.object(digest.removeprefix("blake3:"))]
    (folder / "b").mkdir()

    def by_hand() -> None:
        (folder / "b").mkdir()
        subprocess.run([*copy, str(folder / "b/model.bin")], check=True)

    ours, base = in_turns(
        5,
        lambda: timed(lambda: cache.restore(found, str(folder / "a"))),
        lambda: timed(by_hand),
    )
    return Row(
        "restoring 2 GB, verified, against cp --reflink=auto",
        f"{ours:.2f} s",
        f"{base:.2f} s",
        ours / base,
        1.1,
    )


MAKE = """
import gputasks as gt
DOIT_CONFIG = gt.doit_config()
def task_make():
    return gt.command(["cp", "source.bin", "model.bin"], artifacts=["model.bin"], cache={cache})
"""


def bench_store(folder: Path) -> Row:
    """Time until the task is reported done, with the cache less without."""
    for name, cache in (("with", True), ("without", False)):
        write(folder / name, "dodo.py", MAKE.format(cache=cache))
        large(folder / name / "source.bin", GB)

    def until_done(name: str) -> float:
        shutil.rmtree(folder / name / ".gputasks", ignore_errors=True)
        (folder / name / "model.bin").unlink(missing_ok=True)
        os.sync()
        began = time.perf_counter()
        with subprocess.Popen(
            [PYTHON, "-m", "doit"],
            cwd=folder / name,
            env={**environ(), "GPUTASKS_OUTPUT": "json"},
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                event = json.loads(line)
                if event.get("kind") == "task" and event.get("status") == "succeeded":
                    done = time.perf_counter() - began
            assert process.wait() == 0
        return done

    def hashing() -> float:
        began = time.perf_counter()
        file_digest(str(folder / "with/source.bin"))
        return time.perf_counter() - began

    ours, base, digest = in_turns(
        5, lambda: until_done("with"), lambda: until_done("without"), hashing
    )
    extra = max(0.0, ours - base)
    return Row(
        "until 1 GB is done, more with the cache than without, against hashing it",
        f"{extra * 1e3:.0f} ms",
        f"{digest * 1e3:.0f} ms",
        extra / digest,
        1.0,
    )
