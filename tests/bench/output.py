"""What it costs to be watched: events on the worker's side, output and events on doit's."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import PYTHON, Row, environ, write

RANKS, EVENTS_PER_S = 4, 1000
OUTPUT_MB = 200
MEMORY_MB = 60.0
PAYLOAD = str(Path(__file__).resolve().parents[2] / "gputasks" / "agent" / "payload")

CALLS = """
import json, time
from gputasks_worker import progress as module
def report(step):
    module.progress(step=step, total=10**9, epoch=0, max_epochs=3, loss=0.25, val_acc=0.5, lr=1e-3)
report(0)
began, count = time.process_time(), 100_000
for step in range(count):
    report(step)
call = (time.process_time() - began) / count
began, count = time.process_time(), 2_000
for step in range(count):
    report(step)
    module._progress.flush()
written = (time.process_time() - began) / count
print(json.dumps([call, written, module.INTERVAL_S]))
"""

PEAK = """
import atexit
import gputasks as gt
def tell():
    line = next(t for t in open("/proc/self/status") if t.startswith("VmHWM"))
    open("peak", "w").write(line.split()[1])
    import resource
    used = resource.getrusage(resource.RUSAGE_SELF)
    open("cpu", "w").write(str(used.ru_utime + used.ru_stime))
atexit.register(tell)
DOIT_CONFIG = gt.doit_config()
"""

PRINTS = """
def task_prints():
    return gt.command(["python", "prints.py"])
"""

FLOOD = """
import os, sys, time
line = b'{"t":%.3f,"kind":"progress","rank":%d,"step":%d,"total":9999,"epoch":0,"max_epochs":1,"rate":1000.0,"metrics":{"loss":0.25,"val_acc":0.5}}' + bytes([10])
files = [open(os.path.join(os.environ["GPUTASKS_EVENTS_DIR"], "rank-0.jsonl"), "ab", buffering=0)]
began = time.monotonic()
for step in range(int(sys.argv[1])):
    for file in files:
        file.write(line % (time.time(), 0, step))
    time.sleep(max(0.0, began + step / float(sys.argv[2]) - time.monotonic()))
"""


def bench_events(folder: Path) -> Row:
    """CPU of one worker that reports each of 1,000 steps a second, while its fellows do the same."""
    workers = [
        subprocess.Popen(
            [PYTHON, "-c", CALLS],
            env={
                **environ(),
                "PYTHONPATH": PAYLOAD,
                "GPUTASKS_EVENTS": str(folder / f"rank-{rank}.jsonl"),
                "RANK": str(rank),
            },
            stdout=subprocess.PIPE,
        )
        for rank in range(RANKS)
    ]
    costs = [json.loads(worker.communicate()[0]) for worker in workers]
    share = max(EVENTS_PER_S * call + written / every for call, written, every in costs)
    return Row(
        f"gt.progress() {EVENTS_PER_S} times a second in {RANKS} ranks, of one core, against 1 %",
        f"{share:.2%}",
        "1 %",
        share / 0.01,
        1.0,
    )


def _doit(folder: Path) -> tuple[float, float]:
    """Peak memory in MB, CPU seconds of the doit process."""
    subprocess.run(
        [PYTHON, "-m", "doit"],
        cwd=folder,
        env=environ(),
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    peak = int((folder / "peak").read_text()) * 1024 / 1e6
    return peak, float((folder / "cpu").read_text())


def bench_output(folder: Path) -> Row:
    """Memory of doit while a task prints a lot, in long lines and short ones and without an end."""
    write(folder, "dodo.py", PEAK + PRINTS)
    write(
        folder,
        "prints.py",
        f"""
        import sys
        for part in range({OUTPUT_MB}):
            end = ("\\n", "\\r", "")[part % 3]
            sys.stdout.write(("x" * 99 + end) * 10_000)
        """,
    )
    peak, _ = _doit(folder)
    return Row(
        f"memory of doit, {OUTPUT_MB} MB through one task, against {MEMORY_MB:.0f} MB",
        f"{peak:.0f} MB",
        f"{MEMORY_MB:.0f} MB",
        peak / MEMORY_MB,
        1.0,
    )


def bench_follow(folder: Path) -> Row:
    """Memory and CPU of doit that follows a worker which writes 4,000 raw events a second."""
    seconds, rate = 10, RANKS * EVENTS_PER_S
    write(
        folder,
        "dodo.py",
        PEAK + PRINTS.replace('"prints.py"', f'"prints.py", "{seconds * rate}", "{rate}"'),
    )
    write(folder, "prints.py", FLOOD)
    peak, cpu = _doit(folder)
    return Row(
        f"memory of doit, {rate} raw events a second, {cpu / seconds:.0%} of a core, against {MEMORY_MB:.0f} MB",
        f"{peak:.0f} MB",
        f"{MEMORY_MB:.0f} MB",
        peak / MEMORY_MB,
        1.0,
    )


BENCHES = {"events": bench_events, "output": bench_output, "follow": bench_follow}


def measure() -> list[Row]:
    """All of them."""
    rows = []
    for bench in BENCHES.values():
        with tempfile.TemporaryDirectory(prefix="gputasks-bench-") as folder:
            rows.append(bench(Path(folder)))
    return rows


if __name__ == "__main__":
    for row in measure():
        print(f"{row.ratio:7.2f} {row.limit:6.2f}  {row.ours:>12}  {row.claim}")
    sys.exit(0)
