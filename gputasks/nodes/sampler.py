"""What the leased GPUs do while a run uses them: `gpus.csv`, `gpu` events, a median for the record.

One `nvidia-smi --loop` for the whole attempt: starting it anew for each look would wake the driver
each time, a tenth of a second of one core per GPU.  It runs under a guard of its own, so that
it ends with the attempt, and also when doit is killed.  MIG instances have no utilisation.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from typing import TYPE_CHECKING, Any

from gputasks.proc import Guarded, Start

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gputasks.events import EventLog
    from gputasks.specs import Gpu

QUERY = "uuid,utilization.gpu,memory.used,memory.total,power.draw,temperature.gpu"
HEADER = "time,uuid,utilisation_percent,memory_mib,power_w,temperature_c\n"
EVERY_S = 5
LOOK_S = 0.5
END_S = 5.0


@contextlib.contextmanager
def sampling(
    gpus: Sequence[Gpu], folder: str, *, mark: str, log: EventLog
) -> Iterator[GpuSampler | None]:
    """Sample as long as the block lasts; None where there is nothing to ask or nobody answers.

    Args:
        gpus: the leased ones.
        folder: of the attempt, gets `gpus.csv`.
        mark: of the attempt; the sampler's own is derived from it.
        log: gets the events.

    """
    whole = [gpu for gpu in gpus if gpu.uuid.startswith("GPU-")]
    if not whole or shutil.which("nvidia-smi") is None:
        yield None
        return
    sampler = None
    with contextlib.suppress(OSError):
        sampler = GpuSampler(whole, folder, mark=mark, log=log)
    try:
        yield sampler
    finally:
        if sampler is not None:
            sampler.stop()


class GpuSampler:
    """A running `nvidia-smi`, whose lines come through a pipe: nothing of it grows on the disk."""

    def __init__(self, gpus: Sequence[Gpu], folder: str, *, mark: str, log: EventLog) -> None:
        self._gpus = {gpu.uuid: gpu for gpu in gpus}
        self._csv = os.path.join(folder, "gpus.csv")
        self._log = log
        self._rest = b""
        self._round: dict[str, list[float | None]] = {}
        self._looked = 0.0
        self._used = {uuid: [0] * 101 for uuid in self._gpus}
        self._memory: dict[str, float] = {}
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        try:
            self._guard = Guarded.start(
                Start(
                    argv=[
                        "nvidia-smi",
                        # By number: that it takes several UUIDs is nowhere written.
                        "--id=" + ",".join(str(gpu.index) for gpu in gpus),
                        f"--query-gpu={QUERY}",
                        "--format=csv,noheader,nounits",
                        f"--loop={EVERY_S}",
                    ],
                    env=dict(os.environ),
                    cwd="/",
                    output=f"/proc/{os.getpid()}/fd/{self._writer}",
                    mark=mark + "/gpus.csv",
                    grace_s=0.0,
                )
            )
        except OSError:
            self._close()
            raise

    def look(self) -> None:
        """Take what was said since the last look; cheap, to be called often."""
        now = time.monotonic()
        if now - self._looked < LOOK_S:
            return
        self._looked = now
        try:
            data = os.read(self._reader, 65536)
        except OSError:
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(line.decode("utf-8", "replace"))
        if len(self._round) == len(self._gpus):
            self._tell()

    def stop(self) -> None:
        """End it, whatever it does."""
        self._looked = 0.0
        self.look()
        self._tell()
        self._guard.kill()
        self._guard.wait(END_S)
        self._close()

    def summary(self) -> list[dict[str, Any]]:
        """Per GPU: median utilisation in percent, greatest memory in MiB, number of samples."""
        return [
            {
                "id": self._gpus[uuid].visible_as,
                "uuid": uuid,
                "utilisation": _median(counts),
                "memory_mib": self._memory.get(uuid),
                "samples": sum(counts),
            }
            for uuid, counts in self._used.items()
        ]

    def _take(self, line: str) -> None:
        uuid, *fields = [field.strip() for field in line.split(",")]
        if uuid not in self._gpus or len(fields) != 5:
            return  # an error of the driver's, or a GPU of somebody else's
        if uuid in self._round:
            self._tell()
        self._round[uuid] = [_number(field) for field in fields]

    def _tell(self) -> None:
        """One round is complete."""
        samples, self._round = self._round, {}
        if not samples:
            return
        now, rows, shown = time.time(), [], []
        for uuid, (used, memory, total, power, temperature) in samples.items():
            if used is not None:
                self._used[uuid][min(100, max(0, round(used)))] += 1
            if memory is not None:
                self._memory[uuid] = max(memory, self._memory.get(uuid, 0.0))
            cells = (used, memory, power, temperature)
            rows.append(f"{now:.1f},{uuid},{','.join(map(_cell, cells))}\n")
            shown.append(
                {
                    "id": self._gpus[uuid].visible_as,
                    "util": used,
                    "mem_mib": memory,
                    "mem_total_mib": total,
                }
            )
        with contextlib.suppress(OSError), open(self._csv, "a", encoding="utf-8") as file:
            if not file.tell():
                file.write(HEADER)
            file.writelines(rows)
        self._log.write("gpu", gpus=shown)

    def _close(self) -> None:
        for fd in (self._reader, self._writer):
            os.close(fd)


def _number(field: str) -> float | None:
    """`[N/A]`, `[Not Supported]` and the like are None."""
    try:
        value = float(field)
    except ValueError:
        return None
    return int(value) if value == value // 1 else value


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def _median(counts: Sequence[int]) -> int | None:
    """The lower median of percentages that were counted; None of none."""
    half, seen = (sum(counts) + 1) // 2, 0
    for percent, count in enumerate(counts):
        seen += count
        if count and seen >= half:
            return percent
    return None
