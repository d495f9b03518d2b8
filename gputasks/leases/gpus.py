"""GPU leases: exclusive among all gputasks processes of a machine, all or nothing."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from typing import TYPE_CHECKING

from gputasks.errors import MachineError
from gputasks.layout import file_name
from gputasks.leases.flock import describe, open_lock, read_owner, try_lock, write_owner

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gputasks.specs import Gpu, GpuCount

POLL_S = 0.25


class GpuLease:
    """GPUs held, as open locked files."""

    def __init__(self, gpus: Sequence[Gpu], fds: Sequence[int]) -> None:
        self.gpus = tuple(gpus)
        self.fds = tuple(fds)

    def release(self) -> None:
        """Let go of this process's share; a guard that got the files goes on holding them."""
        for fd in self.fds:
            with contextlib.suppress(OSError):
                os.close(fd)
        self.fds = ()


def lease_dir() -> str:
    """The folder of the lock files: one for all users of the machine.

    Raises:
        MachineError: the folder cannot be made or is not one that several users can share.

    """
    wanted = os.environ.get("GPUTASKS_LEASE_DIR")
    base = "/run/lock" if os.access("/run/lock", os.W_OK | os.X_OK) else "/tmp"  # noqa: S108  sticky, shared on purpose
    path = wanted or os.path.join(base, "gputasks")
    try:
        os.makedirs(path, exist_ok=True)
        with contextlib.suppress(PermissionError):
            os.chmod(path, 0o1777)  # noqa: S103  as /tmp: all users lock here, none removes
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            raise NotADirectoryError(path)
    except OSError as error:
        raise MachineError(
            f"the folder of GPU leases `{path}` cannot be used: {error.strerror or error}",
            hint="set `GPUTASKS_LEASE_DIR` to a folder that all users of this machine can write",
        ) from error
    return path


def lease_gpus(
    gpus: Sequence[Gpu],
    count: GpuCount,
    *,
    source: str,
    use_busy: bool = False,
    task: str = "",
    run: str = "",
    waiting: Callable[[str], None] = lambda _text: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> GpuLease | None:
    """Lease `count` of the GPUs, waiting until that many are free; None when cancelled.

    `"auto"` takes every free one, at least one where the machine has any; of a list the first
    number that is free now is taken, so that nobody waits for four while two would do.  Nothing is
    held while waiting, so two tasks that wait for each other's GPUs cannot lock each other out.

    Args:
        gpus: the devices the caller may see, free or not.
        count: how many; `"auto"` or None as in `Resources`.
        source: who told of the devices, for the message.
        use_busy: also take devices on which a process of somebody else's computes.
        task: name for the note that others see while they wait.
        run: id of the run, for the same note.
        waiting: told why nothing starts yet, each time the reason changes.
        cancelled: asked between two tries.

    Raises:
        MachineError: the machine has fewer GPUs than were asked for.

    """
    if count in (None, 0) or (count == "auto" and not gpus):
        return GpuLease((), ())
    choices = _choices(count, len(gpus))
    if not choices:
        found = ", ".join(f"{g.visible_as} ({g.name or g.uuid})" for g in gpus) or "none"
        asked = " or ".join(map(str, count)) if isinstance(count, tuple) else count
        raise MachineError(
            f"not enough GPUs: asked for {asked}, this machine shows {len(gpus)}",
            facts=[f"found: {found}", f"told by: {source}", _visible()],
            hint='lower `gpu_count`, or use `gpu_count="auto"` to take what is there',
        )
    folder = lease_dir()
    said = ""
    while True:
        lease, why = _try(folder, gpus, choices, use_busy=use_busy, task=task, run=run)
        if lease is not None:
            return lease
        if why != said:
            said = why
            waiting(why)
        if cancelled():
            return None
        time.sleep(POLL_S)


def holders(gpus: Sequence[Gpu]) -> dict[str, str]:
    """Who holds which GPUs now, by UUID; nothing is taken.

    Raises:
        MachineError: the folder of leases cannot be used.

    """
    folder = lease_dir()
    found = {}
    for gpu in gpus:
        fd = open_lock(os.path.join(folder, file_name(gpu.uuid) + ".lock"))
        try:
            # Shared: two that only look do not see each other.
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            found[gpu.uuid] = describe(read_owner(fd))
        finally:
            os.close(fd)
    return found


def _visible() -> str:
    value = os.environ.get("CUDA_VISIBLE_DEVICES")
    return "CUDA_VISIBLE_DEVICES is not set" if value is None else f"CUDA_VISIBLE_DEVICES={value}"


def _choices(count: GpuCount, there: int) -> tuple[int, ...]:
    """The numbers of GPUs that will do, best first, as far as the machine has so many."""
    if count == "auto":
        return tuple(range(there, 0, -1))
    wanted = count if isinstance(count, tuple) else (count,)
    return tuple(n for n in wanted if isinstance(n, int) and n <= there)


def _try(
    folder: str,
    gpus: Sequence[Gpu],
    choices: tuple[int, ...],
    *,
    use_busy: bool,
    task: str,
    run: str,
) -> tuple[GpuLease | None, str]:
    """One look at all locks under the allocator's lock, so that nobody sees a half-made choice."""
    gate = open_lock(os.path.join(folder, "allocator.lock"))
    free: list[tuple[Gpu, int]] = []
    held: list[str] = []
    try:
        fcntl.flock(gate, fcntl.LOCK_EX)
        for gpu in gpus:
            if gpu.busy and not use_busy:
                held.append(f"GPU {gpu.visible_as}: busy, pid {', '.join(map(str, gpu.pids))}")
                continue
            fd = open_lock(os.path.join(folder, file_name(gpu.uuid) + ".lock"))
            if try_lock(fd):
                free.append((gpu, fd))
            else:
                held.append(f"GPU {gpu.visible_as}: {describe(read_owner(fd))}")
                os.close(fd)
        chosen = next((n for n in choices if n <= len(free)), 0)
        for _, fd in free[chosen:]:
            os.close(fd)
        for gpu, fd in free[:chosen]:
            write_owner(fd, task=task, run=run, gpu=gpu.uuid)
        if chosen:
            return GpuLease([g for g, _ in free[:chosen]], [fd for _, fd in free[:chosen]]), ""
        return None, f"waiting for {choices[-1]} free GPU(s), {len(free)} free; " + "; ".join(held)
    finally:
        os.close(gate)
