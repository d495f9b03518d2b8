"""CUDA_VISIBLE_DEVICES of the caller is the universe: lease inside it, never widen it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputasks.specs import Gpu

if TYPE_CHECKING:
    from collections.abc import Sequence


def visible_gpus(gpus: Sequence[Gpu], visible: str | None) -> tuple[Gpu, ...]:
    """The devices that the caller may use, in the caller's order.

    The rules are CUDA's own (CUDA C++ Programming Guide, environment variables): unset shows all,
    empty shows none, entries are indices, full or abbreviated `GPU-` UUIDs, or `MIG-` UUIDs, and
    the first entry that names no device hides itself and all after it.  A MIG instance that the
    driver's list does not show (also in the old form `MIG-GPU-<uuid>/<gi>/<ci>`) counts as one
    device and is passed on unchanged.
    """
    if visible is None:
        return tuple(gpus)
    chosen: list[Gpu] = []
    for entry in visible.split(","):
        gpu = _match(entry.strip(), gpus)
        if gpu is None or gpu in chosen:
            break
        chosen.append(gpu)
    return tuple(chosen)


def _match(entry: str, gpus: Sequence[Gpu]) -> Gpu | None:
    if entry.isdecimal():
        return next((g for g in gpus if g.index == int(entry) and g.uuid.startswith("GPU-")), None)
    if entry.startswith("GPU-"):
        found = [g for g in gpus if g.uuid.startswith(entry)]
        return found[0] if len(found) == 1 else None
    if entry.startswith("MIG-") and gpus:
        known = next((g for g in gpus if g.uuid == entry), None)
        return known or Gpu(gpus[0].index, entry, "MIG", visible_as=entry)
    return None
