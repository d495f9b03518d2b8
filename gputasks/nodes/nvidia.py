"""The NVIDIA devices of this machine, as the driver's own tool tells them.

`nvidia-smi` is asked rather than NVML through a binding: it comes with every driver, lists MIG
instances, and its CSV has been stable for a decade, while the NVML bindings changed their
structures twice and broke monitors against older drivers (gpustat #107, #141, #161).
"""

from __future__ import annotations

import glob
import re
from dataclasses import replace

from gputasks.proc import run_text
from gputasks.specs import Gpu

QUERY = "index,uuid,name,memory.total,memory.used,mig.mode.current"
TIMEOUT_S = 60.0
"""Without persistence mode the driver needs 1 to 3 s per GPU to wake up."""

_LISTED = re.compile(r"GPU (?P<index>\d+): (?P<name>.*?) \(UUID: (?P<uuid>GPU-[^)]+)\)")
_MIG = re.compile(r"\s+MIG (?P<profile>\S+).*\(UUID: (?P<uuid>MIG-[^)]+)\)")


def list_gpus() -> tuple[tuple[Gpu, ...], str]:
    """All devices in PCI order (MIG instances in place of their GPU) and who told of them.

    A machine without driver, or whose driver does not answer, has none; the second value then says
    why, for the message to somebody who asked for GPUs.
    """
    answer = run_text(
        ["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader,nounits"], timeout_s=TIMEOUT_S
    )
    if answer.returncode == 127:
        return _from_proc()
    gpus, mig = parse_query(answer.out) if answer.returncode == 0 else ((), False)
    if mig or not gpus:
        listed = run_text(["nvidia-smi", "-L"], timeout_s=TIMEOUT_S)
        gpus = parse_list(listed.out, known=gpus) or gpus
    if not gpus:
        line = next((t for t in (answer.err + answer.out).splitlines() if t.strip()), "no devices")
        return (), f"nvidia-smi: {line.strip()}"
    apps = run_text(
        ["nvidia-smi", "--query-compute-apps=gpu_uuid,pid", "--format=csv,noheader,nounits"],
        timeout_s=TIMEOUT_S,
    )
    return with_processes(gpus, apps.out if apps.returncode == 0 else ""), "nvidia-smi"


def parse_query(text: str) -> tuple[tuple[Gpu, ...], bool]:
    """Devices from `--query-gpu` CSV, and whether any has MIG switched on.

    Fields may be `[N/A]` or `[Not Supported]`; lines that hold no UUID are not devices.
    """
    gpus: list[Gpu] = []
    mig = False
    for line in text.splitlines():
        fields = [f.strip() for f in line.split(",")]
        uuid = next((f for f in fields if f.startswith("GPU-")), "")
        if not uuid:
            continue
        index = int(fields[0]) if fields[0].isdecimal() else len(gpus)
        rest = fields[fields.index(uuid) + 1 :]
        numbers = [int(f) for f in rest[1:] if f.isdecimal()]
        gpus.append(
            Gpu(
                index=index,
                uuid=uuid,
                name=rest[0] if rest else "",
                memory_mib=numbers[0] if numbers else 0,
                used_mib=numbers[1] if len(numbers) > 1 else 0,
                visible_as=str(index),
            )
        )
        mig = mig or "Enabled" in rest
    return tuple(gpus), mig


def parse_list(text: str, *, known: tuple[Gpu, ...] = ()) -> tuple[Gpu, ...]:
    """Devices from `nvidia-smi -L`; a GPU that is split counts as its MIG instances."""
    by_uuid = {g.uuid: g for g in known}
    gpus: list[Gpu] = []
    parent: Gpu | None = None
    for line in text.splitlines():
        whole, part = _LISTED.match(line), _MIG.match(line)
        if whole:
            index = int(whole["index"])
            plain = Gpu(index, whole["uuid"], whole["name"], visible_as=str(index))
            parent = by_uuid.get(plain.uuid, plain)
            gpus.append(parent)
        elif part and parent is not None:
            if gpus and gpus[-1] is parent:
                gpus.pop()
            name = f"{parent.name} MIG {part['profile']}"
            gpus.append(Gpu(parent.index, part["uuid"], name, visible_as=part["uuid"]))
    return tuple(gpus)


def with_processes(gpus: tuple[Gpu, ...], text: str) -> tuple[Gpu, ...]:
    """The devices with the compute processes of `--query-compute-apps=gpu_uuid,pid`."""
    pids: dict[str, list[int]] = {}
    for line in text.splitlines():
        fields = [f.strip() for f in line.split(",")]
        if len(fields) == 2 and fields[0].startswith(("GPU-", "MIG-")) and fields[1].isdecimal():
            pids.setdefault(fields[0], []).append(int(fields[1]))
    return tuple(replace(g, pids=tuple(pids.get(g.uuid, ()))) for g in gpus)


def _from_proc() -> tuple[tuple[Gpu, ...], str]:
    """Devices of a driver whose tool is not on PATH: /proc/driver/nvidia, in PCI order."""
    gpus: list[Gpu] = []
    for path in sorted(glob.glob("/proc/driver/nvidia/gpus/*/information")):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                facts = dict(line.split(":", 1) for line in file if ":" in line)
        except OSError:
            continue
        uuid = facts.get("GPU UUID", "").strip()
        if uuid:
            index = len(gpus)
            name = facts.get("Model", "").strip()
            gpus.append(Gpu(index, uuid, name, visible_as=str(index)))
    source = "/proc/driver/nvidia" if gpus else "no NVIDIA driver: `nvidia-smi` is not on PATH"
    return tuple(gpus), source
