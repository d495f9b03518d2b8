"""The words for a cause: one line from an exception, a signal or a log, and what to do next."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PEER_LOSS = re.compile(
    r"Connection closed by peer|Connection reset|Connection refused|Broken pipe|Timed out waiting"
    r"|DistStoreError|DistNetworkError|connectFullMesh|Socket Timeout|wait timeout"
    r"|NCCL.*(?:remote|abort|peer)|Watchdog caught collective operation timeout"
    r"|remote process exited|process group.*(?:abort|timed? ?out)|SIGTERMException",
    re.IGNORECASE,
)
"""What a rank says when another one is gone: true, and not the cause."""

_RAISED = re.compile(
    r"^(?:\[rank\d+\]: )?((?:[\w]+\.)*\w*(?:Error|Exception|Interrupt|Exit)(?::.*)?)$"
)
_USAGE = re.compile(r"^\S.*: error: (.+)$")
_OOM = re.compile(r"Tried to allocate ([\d.]+ \w+)")
_OOM_GPU = re.compile(
    r"GPU (\d+) has a total capacity of ([\d.]+ \w+) of which ([\d.]+ \w+) is free"
)
_CUDA_OOM = re.compile(r"OutOfMemoryError|CUDA out of memory|CUDA error: out of memory|HIP out of")
_LAUNCHER = re.compile(r"No module named '?torch|EADDRINUSE|address already in use", re.IGNORECASE)

_SIGNALS = {
    "SIGSEGV": "killed by SIGSEGV: invalid memory access, mostly in C++ or CUDA code",
    "SIGABRT": "killed by SIGABRT: C++ or CUDA code gave up",
    "SIGBUS": "killed by SIGBUS: mostly shared memory (/dev/shm) that is full",
    "SIGFPE": "killed by SIGFPE: an integer division by zero in C++ code",
    "SIGILL": "killed by SIGILL: built for another CPU than this one",
    "SIGTERM": "ended by SIGTERM from outside",
}

_HINTS = (
    (
        _CUDA_OOM,
        "a smaller batch per worker and more `accumulate_grad_batches`, or `bf16-mixed` precision",
    ),
    (
        re.compile(
            r"SIGBUS|Bus error|out of shared memory|unable to (?:open|write).*shared memory"
        ),
        "`df -h /dev/shm` shows its size; fewer `num_workers`, or a larger `shm_size`",
    ),
    (
        re.compile(r"SIGKILL|DefaultCPUAllocator|MemoryError|is killed by signal: Killed"),
        "`dmesg | tail` tells whether it was memory; fewer `num_workers` or a smaller batch help",
    ),
    (
        re.compile(r"NVIDIA driver on your system is too old|unsatisfied condition: cuda"),
        "`nvidia-smi` shows the driver: CUDA 13 wants 580, CUDA 12 wants 525; or an older torch",
    ),
    (
        re.compile(r"no kernel image is available for execution"),
        "this torch was built for other GPUs: `torch.cuda.get_arch_list()` tells which",
    ),
    (
        re.compile(r"Found no NVIDIA driver|libcuda\.so\.1: cannot open"),
        "no GPU reached it: see `gpu_count`, and in a container `nvidia-container-toolkit`",
    ),
    (
        re.compile(r"Failed to initialize NVML: Unknown Error"),
        "the machine's services were reloaded and the container lost its GPUs: run the task again",
    ),
    (
        re.compile(r"DataLoader worker .*(?:exited unexpectedly|timed out)|DataLoader timed out"),
        "`num_workers=0` runs the data loading inside the worker, where its error shows",
    ),
    (
        re.compile(r"unrecognized arguments|the following arguments are required|invalid choice"),
        "`params` and `args` make the command line: see `argv` in `run.json`, beside the log",
    ),
    (
        re.compile(r"No module named '?torch\b"),
        "`pip install torch` where the interpreter lies, or name another one by `python=`",
    ),
    (
        re.compile(r"No module named '?(?P<module>\w+)"),
        "`pip install {module}` where the interpreter lies, or name another one by `python=`",
    ),
    (
        re.compile(r"Timed out waiting|wait timeout|Watchdog caught|Socket Timeout", re.IGNORECASE),
        '`env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}` lets torch name the rank that is missing',
    ),
    (
        re.compile(r"EADDRINUSE|address already in use", re.IGNORECASE),
        "another program took the port in between: start the task again",
    ),
    (
        re.compile(r"No space left on device|Disk quota exceeded"),
        "`df -h .` shows the disk; `.gputasks/trash` and `.gputasks/runs` may be removed",
    ),
)


def signal_name(code: int) -> str:
    """`SIGKILL` for 9; signals without a name keep their number."""
    try:
        return signal.Signals(code).name
    except ValueError:
        return f"signal {code}"


def tells_peer_loss(error: Mapping[str, Any]) -> bool:
    """True when an exception of torch's says that another rank is gone.

    A `ConnectionResetError` or `requests.ConnectionError` is the script's own trouble.
    """
    kind = str(error.get("type", ""))
    from_torch = kind == "RuntimeError" or kind.startswith(
        ("torch.", "pytorch_lightning", "lightning")
    )
    return from_torch and bool(PEER_LOSS.search(f"{kind}: {error.get('message', '')}"))


def of_error(error: Mapping[str, Any], lines: Sequence[str]) -> str:
    """One line for an exception that a rank wrote down."""
    kind, message = str(error.get("type", "")), str(error.get("message", ""))
    first = next((line.strip() for line in message.splitlines() if line.strip()), "")
    if kind == "SystemExit":
        if not message.isdigit():
            return first
        return _usage(lines) or f"sys.exit({message})"
    if kind.endswith("TrainedAloneError"):
        return first
    if "Original Traceback" in message:  # it happened in a process of a DataLoader
        return last_raised(message.splitlines()) or f"{kind}: {first}"
    if _CUDA_OOM.search(f"{kind}: {first}"):
        return _out_of_memory(kind, message)
    return f"{kind}: {first}" if first else kind


def of_signal(name: str, lines: Sequence[str], oom_kills: int | None) -> str:
    """One line for a rank that was killed."""
    if name == "SIGKILL":
        if oom_kills:
            return "killed by SIGKILL: the kernel was out of host memory (oom_kill in its cgroup)"
        if oom_kills == 0:
            return "killed by SIGKILL from outside: its cgroup counted no lack of host memory"
        return "killed by SIGKILL, likely out of host memory"
    what = next((line.strip() for line in reversed(lines) if "what():" in line), "")
    text = _SIGNALS.get(name, f"killed by {name}")
    return f"{text} ({what.split('what():')[1].strip()})" if what else text


def of_log(lines: Sequence[str]) -> str:
    """What the last lines of a log say about an end that nobody wrote down; may be empty."""
    told = _usage(lines) or last_raised(lines)
    if told and _CUDA_OOM.search(told):
        kind, _, message = told.partition(": ")
        return _out_of_memory(kind, message)
    return told


def of_launcher(lines: Sequence[str]) -> str:
    """Why torch's launcher could not start anybody: its last words."""
    known = [line for line in lines if _LAUNCHER.search(line)]
    words = known[-1] if known else last_raised(lines) or (lines[-1] if lines else "")
    return words.strip()


def last_raised(lines: Sequence[str]) -> str:
    """The last line that ends a traceback, empty when there is none."""
    for line in reversed(lines):
        match = _RAISED.match(line.strip())
        if match:
            return match[1]
    return ""


def hint(*texts: str) -> str:
    """What to do next, empty when nothing sensible can be said."""
    whole = "\n".join(texts)
    for pattern, text in _HINTS:
        match = pattern.search(whole)
        if match:
            return text.format(**match.groupdict()) if match.groupdict() else text
    return ""


def _usage(lines: Sequence[str]) -> str:
    """What argparse said before it ended the script with code 2."""
    match = next((m for m in map(_USAGE.match, reversed(lines)) if m), None)
    return match[1] if match else ""


def _out_of_memory(kind: str, message: str) -> str:
    """`torch.OutOfMemoryError: tried to allocate 2.50 GiB on GPU 0, 1.12 GiB of 79.15 GiB free`."""
    wanted, gpu = _OOM.search(message), _OOM_GPU.search(message)
    if not wanted:
        return f"{kind}: {message.splitlines()[0]}" if message else kind
    text = f"{kind}: tried to allocate {wanted[1]}"
    return f"{text} on GPU {gpu[1]}, {gpu[3]} of {gpu[2]} free" if gpu else text
