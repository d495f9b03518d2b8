"""Can these GPUs run what is in this image?  Pure: facts of both in, faults as texts out.

Drivers: CUDA 13 needs 580, 12 needs 525, 11 needs 450 (NVIDIA, "CUDA Minor Version
Compatibility").  A newer driver runs older CUDA, an older one does not run newer CUDA.  Kernels:
the wheels of torch hold code for some architectures only, the floors below are of those wheels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gputasks.frozen import Frozen, spec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Version = tuple[int, ...]

DRIVERS = {13: 580, 12: 525, 11: 450}
"""Major version of CUDA -> major version of the oldest driver."""

OLDEST = {13: (7, 5), 12: (5, 0), 11: (3, 5)}
"""Major version of CUDA -> oldest compute capability that it still has."""

FLOORS: tuple[tuple[Version, Version, Version], ...] = (
    ((10, 0), (2, 7), (12, 8)),
    ((9, 0), (2, 0, 1), (11, 8)),
    ((8, 0), (1, 7), (11, 0)),
)
"""From this compute capability on: torch at least, CUDA at least."""

MAX_CUDA = {570: "12.8", 565: "12.7", 560: "12.6", 555: "12.5", 550: "12.4", 545: "12.3",
            535: "12.2", 530: "12.1", 525: "12.0", 520: "11.8", 450: "11.0"}  # fmt: skip
"""What a driver supports, for advice."""


@spec
class GpuFacts(Frozen):
    """A GPU as the driver tells of it; empty texts are unknown."""

    index: int
    name: str
    driver: str
    compute_cap: str


QUERY = "index,name,driver_version,compute_cap"
"""For `nvidia-smi --query-gpu=… --format=csv,noheader`."""


def parse_gpus(text: str) -> list[GpuFacts]:
    """GPUs from that program's output; lines of another form are none."""
    found = []
    for line in text.splitlines():
        fields = [f.strip() for f in line.split(",")]
        if len(fields) >= 4 and fields[0].isdecimal():
            name = ", ".join(fields[1:-2])
            found.append(GpuFacts(int(fields[0]), name, fields[-2], fields[-1]))
    return found


def cuda_faults(
    facts: Mapping[str, Any], gpus: Sequence[GpuFacts], image: str = "the image"
) -> list[str]:
    """Why these GPUs cannot run this image; empty when they can, or when nobody knows.

    Args:
        facts: `torch` and `cuda` of the image.
        gpus: what is there.
        image: how messages call it.

    """
    torch, cuda = str(facts.get("torch") or ""), str(facts.get("cuda") or "")
    if not torch or not gpus:
        return []
    if not cuda:
        text = f"{image} has torch {torch} without CUDA, so it uses no GPU"
        return [f"{text}: install torch from an index with CUDA wheels"]
    found = list(_driver(torch, cuda, gpus, image))
    for gpu in gpus:
        found += _kernels(torch, cuda, gpu, image)
    return list(dict.fromkeys(found))


def _driver(torch: str, cuda: str, gpus: Sequence[GpuFacts], image: str) -> Iterator[str]:
    major = _version(cuda)[:1]
    floor = DRIVERS.get(major[0]) if major else None
    if floor is None:
        return
    for driver in sorted({g.driver for g in gpus}):
        number = _version(driver)
        if number and number[0] < floor:
            supports = next((v for k, v in MAX_CUDA.items() if number[0] >= k), "")
            advice = f"driver {driver} supports CUDA {supports}; " if supports else ""
            wheel = supports.replace(".", "")
            other = f"torch with cu{wheel}, " if supports else ""
            yield (
                f"{advice}{image} has torch {torch} with CUDA {cuda}, which needs a driver from"
                f" {floor} on: use {other}a newer driver, or a base with cuda-compat-{major[0]}"
            )


def _kernels(torch: str, cuda: str, gpu: GpuFacts, image: str) -> Iterator[str]:
    capability = _version(gpu.compute_cap)
    if not capability:
        return
    arch = f"sm_{''.join(map(str, capability))}"
    what = f"GPU {gpu.index} ({gpu.name}, {arch})"
    major = _version(cuda)[0]
    oldest = OLDEST.get(major)
    if oldest and capability < oldest:
        yield (
            f"{what} is too old for CUDA {major}, which {image} has:"
            f" use torch with CUDA {major - 1}"
        )
    for floor, torch_floor, cuda_floor in FLOORS:
        if capability >= floor:
            if _version(torch) < torch_floor or _version(cuda) < cuda_floor:
                yield (
                    f"{image} has no kernel for {what}: torch {torch} with CUDA {cuda}, needed is"
                    f" torch {_text(torch_floor)} with CUDA {_text(cuda_floor)} or newer"
                )
            return


def _version(text: str) -> Version:
    """`2.7.1+cu128` as (2, 7, 1); empty when it is no version."""
    numbers = []
    for part in text.partition("+")[0].split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)


def _text(version: Version) -> str:
    return ".".join(map(str, version))
