"""What must hold of the spine: a no-op, a large dataset, hashing, a training."""

from __future__ import annotations

import os
import statistics
import subprocess
from pathlib import Path

from measure import PYTHON, Row, environ, in_turns, run, write

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


def bench_status(folder: Path) -> Row:
    write(folder, "in.txt", "1")
    write(folder, "dodo.py", OURS)
    write(folder, "train.py", "open('c.txt', 'w').write('1')")
    run([PYTHON, "-m", "doit"], folder)
    program = "import sys; from gputasks.cli.main import main; sys.exit(main(['status']))"
    ours, bare = in_turns(
        25,
        lambda: run([PYTHON, "-c", program], folder),
        lambda: run([PYTHON, "-c", "pass"], folder),
    )
    return Row(
        "start of `gputasks status`, which needs no graph, against 60 ms",
        f"{ours * 1e3:.0f} ms",
        f"60 ms (python {bare * 1e3:.0f})",
        ours / 0.06,
        1.0,
    )
