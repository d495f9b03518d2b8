"""A torch-free stand-in for `torch.distributed.run`: standard library only, copied as a file."""

import json
import os
import signal
import socket
import subprocess
import sys
import time


def worker_env(rank, world, port):
    """What torch's agent gives each worker on one node."""
    env = dict(os.environ)
    env.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(world),
        LOCAL_WORLD_SIZE=str(world),
        GROUP_RANK="0",
        GROUP_WORLD_SIZE="1",
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        TORCHELASTIC_RUN_ID=os.environ.get("PET_RDZV_ID", "none"),
        TORCHELASTIC_RESTART_COUNT="0",
        TORCHELASTIC_MAX_RESTARTS="0",
    )
    log_dir = os.path.join(
        os.environ["PET_LOG_DIR"], os.environ.get("PET_RDZV_ID", "none"), "attempt_0", str(rank)
    )
    os.makedirs(log_dir, exist_ok=True)
    env["TORCHELASTIC_ERROR_FILE"] = os.path.join(log_dir, "error.json")
    return env


def main(argv):
    """Start the workers, wait for all or for the first that fails."""
    world = int(os.environ.get("PET_NPROC_PER_NODE", "1"))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    workers = [
        subprocess.Popen(
            [sys.executable, "-u", *argv], env=worker_env(r, world, port), start_new_session=True
        )
        for r in range(world)
    ]

    # Only noted: a handler that comes while `poll` holds its lock would wait for itself.
    asked = []
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, lambda number, _frame: asked.append(number))
    while True:
        if asked:
            stop(workers, float(os.environ.get("PET_SHUTDOWN_TIMEOUT", "30")))
            return 1
        codes = [w.poll() for w in workers]
        failed = [r for r, c in enumerate(codes) if c]
        if failed:
            stop(workers, 30.0)
            report(workers, failed[0])
            return 1
        if all(c == 0 for c in codes):
            return 0
        time.sleep(0.02)


def stop(workers, timeout):
    """SIGTERM, time, SIGKILL."""
    for worker in workers:
        if worker.poll() is None:
            print("Sending process %d closing signal SIGTERM" % worker.pid, file=sys.stderr)
            worker.terminate()
    deadline = time.monotonic() + timeout
    for worker in workers:
        try:
            worker.wait(max(0.01, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()


def report(workers, first):
    """The table that torch prints."""
    line = "-" * 60
    print("=" * 60, "FAILED", line, "Failures:", sep="\n", file=sys.stderr)
    rows = [r for r, w in enumerate(workers) if w.returncode and r != first]
    for number, rank in enumerate(rows):
        row(number, rank, workers[rank])
    print(line, "Root Cause (first observed failure):", sep="\n", file=sys.stderr)
    row(0, first, workers[first])
    print("=" * 60, file=sys.stderr)


def row(number, rank, worker):
    """One failed worker."""
    code = worker.returncode
    print(
        "[%d]:\n  time      : %s\n  host      : localhost\n  rank      : %d (local_rank: %d)\n"
        "  exitcode  : %d (pid: %d)\n  error_file: <N/A>\n  traceback : %s"
        % (
            number,
            time.strftime("%Y-%m-%d_%H:%M:%S"),
            rank,
            rank,
            code,
            worker.pid,
            "Signal %d (%s) received by PID %d" % (-code, signal.Signals(-code).name, worker.pid)
            if code < 0
            else json.dumps("To enable traceback see torch's documentation"),
        ),
        file=sys.stderr,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
