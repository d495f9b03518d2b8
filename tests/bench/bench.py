"""`doit bench`: what must hold, as ratios of two things measured side by side in one run.

Machines differ and are shared; a ratio of medians taken in turns hardly does.  Exit code 1 when a
limit is broken.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PYTHON = sys.executable
REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass
class Row:
    """One claim: `ours` against `base`, with what the limit allows."""

    claim: str
    ours: str
    base: str
    ratio: float
    limit: float

    @property
    def holds(self) -> bool:
        return self.ratio <= self.limit


def environ() -> dict[str, str]:
    env = {
        k: v
        for k, v in os.environ.items()
        if k not in ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
    }
    env["PYTHONPATH"] = str(REPOSITORY)
    return env


def run(argv: list[str], cwd: Path) -> float:
    began = time.perf_counter()
    subprocess.run(
        argv,
        cwd=cwd,
        env=environ(),
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return time.perf_counter() - began


def in_turns(times: int, *work: Callable[[], float]) -> list[float]:
    """Medians of several things, measured in turns so that noise meets all alike."""
    for each in work:
        each()
    seen: list[list[float]] = [[] for _ in work]
    for _ in range(times):
        for one, each in zip(seen, work, strict=True):
            one.append(each())
    return [statistics.median(s) for s in seen]


def write(folder: Path, name: str, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(textwrap.dedent(text))


BARE = """
DOIT_CONFIG = {"backend": "sqlite3", "dep_file": "doit.db", "verbosity": 0}
def copy(name, dep, target, extra=()):
    return {"actions": [["cp", dep, target]], "file_dep": [dep, *extra], "targets": [target]}
def task_a(): return copy("a", "in.txt", "a.txt")
def task_b(): return copy("b", "a.txt", "b.txt")
def task_c(): return copy("c", "b.txt", "c.txt", ["train.py"])
"""

OURS = """
import gputasks as gt
DOIT_CONFIG = gt.doit_config()
def task_a(): return gt.command(["cp", "in.txt", "a.txt"], file_dep=["in.txt"], artifacts=["a.txt"])
def task_b(): return gt.command(["cp", "a.txt", "b.txt"], file_dep=["a.txt"], artifacts=["b.txt"])
def task_c():
    return gt.command(["python", "train.py"], file_dep=["b.txt"], artifacts=["c.txt"])
"""


def bench_noop(folder: Path) -> Row:
    for name, dodo in (("bare", BARE), ("ours", OURS)):
        write(folder / name, "dodo.py", dodo)
        write(folder / name, "in.txt", "1")
        write(
            folder / name,
            "train.py",
            "import helper\nopen('c.txt', 'w').write(open('b.txt').read())\n",
        )
        write(folder / name, "helper.py", "import json, os\n")
    doit = [PYTHON, "-m", "doit"]
    bare, ours = in_turns(
        25, lambda: run(doit, folder / "bare"), lambda: run(doit, folder / "ours")
    )
    return Row(
        "no-op of three tasks, against bare doit (sqlite3)",
        f"{ours * 1e3:.0f} ms",
        f"{bare * 1e3:.0f} ms",
        ours / bare,
        1.25,
    )


def bench_dataset(folder: Path) -> Row:
    data = folder / "data"
    for i in range(100):
        (data / f"d{i:02d}").mkdir(parents=True, exist_ok=True)
        for j in range(100):
            (data / f"d{i:02d}" / f"f{j:02d}.bin").write_bytes(os.urandom(100) * 1000)
    names = "abcde"
    tasks = "".join(
        f'def task_{n}(): return gt.command(["touch", "x"], file_dep=["data"], name=None)\n'
        for n in names
    ).replace(", name=None", "")
    write(folder, "dodo.py", "import gputasks as gt\nDOIT_CONFIG = gt.doit_config()\n" + tasks)
    empty = folder / "floor"
    write(
        empty,
        "dodo.py",
        "import gputasks as gt\nDOIT_CONFIG = gt.doit_config()\n" + tasks.replace('"data"', '"x"'),
    )
    write(empty, "x", "1")
    doit, find = [PYTHON, "-m", "doit"], ["find", "data", "-type", "f", "-printf", "%s %T@\n"]
    ours, floor, base = in_turns(
        11, lambda: run(doit, folder), lambda: run(doit, empty), lambda: run(find, folder)
    )
    extra = max(0.0, ours - floor)
    return Row(
        "second check of 10,000 files, 1 GB, by 5 tasks, less the floor, against find",
        f"{extra * 1e3:.0f} ms",
        f"{base * 1e3:.0f} ms",
        extra / base,
        3.0,
    )


HASH = """
import sys, time
from gputasks.fingerprint.hashing import file_digest
def cpu():
    return time.process_time()
for path in sys.argv[1:]:
    open(path, "rb").read()
began = cpu()
for path in sys.argv[1:]:
    file_digest(path)
print(cpu() - began)
"""


def bench_hash(folder: Path) -> Row:
    path = folder / "large.bin"
    block = os.urandom(1 << 20)
    with open(path, "wb") as file:
        file.writelines(block for _ in range(1000))
    seen = [
        float(
            subprocess.run(
                [PYTHON, "-c", HASH, str(path)],
                env=environ(),
                check=True,
                capture_output=True,
                text=True,
            ).stdout
        )
        for _ in range(3)
    ]
    rate = (1000 << 20) / 1e9 / statistics.median(seen)
    return Row(
        "first hash from page cache: seconds of one core per GB, against 1",
        f"{rate:.2f} GB/s per core",
        "1 GB/s per core",
        1 / rate,
        1.0,
    )


TRAIN = """
import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(1500):
    optimizer.zero_grad(); model(torch.randn(64, 64)).square().mean().backward(); optimizer.step()
if dist.get_rank() == 0:
    torch.save(model.state_dict(), "model.pt")
dist.destroy_process_group()
"""


def bench_train(folder: Path) -> Row:
    write(folder, "train.py", TRAIN)
    write(
        folder,
        "dodo.py",
        """
        import gputasks as gt
        DOIT_CONFIG = gt.doit_config()
        def task_train():
            return gt.train("train.py", nproc_per_node=2, artifacts=["model.pt"],
                            env={"OMP_NUM_THREADS": "1"}, resources=gt.Resources(gpu_count=0))
    """,
    )
    torchrun = [
        "env",
        "OMP_NUM_THREADS=1",
        PYTHON,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        "train.py",
    ]
    ours, base = in_turns(
        3, lambda: run([PYTHON, "-m", "doit", "-a"], folder), lambda: run(torchrun, folder)
    )
    return Row(
        "doit train, less 1 s, against torchrun of the same script",
        f"{ours:.2f} s",
        f"{base:.2f} s",
        (ours - 1) / base,
        1.03,
    )


BENCHES = {"noop": bench_noop, "dataset": bench_dataset, "hash": bench_hash, "train": bench_train}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="*", help=f"some of: {' '.join(BENCHES)} [all]")
    broken = 0
    print(f"{'ratio':>7} {'limit':>6}  {'ours':>20} {'base':>16}  claim")
    for name in parser.parse_args().name or BENCHES:
        with tempfile.TemporaryDirectory(prefix="gputasks-bench-") as folder:
            row = BENCHES[name](Path(folder))
        broken += not row.holds
        mark = "" if row.holds else "  BROKEN"
        print(
            f"{row.ratio:7.2f} {row.limit:6.2f}  {row.ours:>20} {row.base:>16}  {row.claim}{mark}",
            flush=True,
        )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
