"""Drivers, compute capabilities, and what an image brings: all of it without a GPU."""

from __future__ import annotations

import pytest

from gputasks.images.cuda import GpuFacts, cuda_faults, parse_gpus


def gpu(driver: str = "580.65.06", cap: str = "9.0", index: int = 0) -> GpuFacts:
    return GpuFacts(index, "NVIDIA H100", driver, cap)


def faults(torch: str, cuda: str | None, *gpus: GpuFacts) -> str:
    return "; ".join(cuda_faults({"torch": torch, "cuda": cuda}, gpus))


@pytest.mark.parametrize(
    ("cuda", "driver", "fine"),
    [
        ("13.0", "580.65.06", True),
        ("13.0", "590.1", True),
        ("13.0", "575.51", False),
        ("12.8", "525.60.13", True),
        ("12.8", "520.61.05", False),
        ("12.1", "580.65", True),
        ("11.8", "450.80.02", True),
        ("11.8", "418.0", False),
        ("10.2", "390.0", True),
        ("13.0", "", True),
    ],
)
def test_drivers(cuda, driver, fine):
    assert (faults("2.13.0", cuda, gpu(driver, "")) == "") is fine


def test_the_message_says_what_to_do():
    told = faults("2.14.1+cu130", "13.0", gpu("570.86.15"))
    assert "driver 570.86.15 supports CUDA 12.8" in told
    assert "needs a driver from 580 on" in told
    assert "torch with cu128" in told
    assert "cuda-compat-13" in told


@pytest.mark.parametrize(
    ("torch", "cuda", "cap", "fine"),
    [
        ("2.7.0", "12.8", "12.0", True),
        ("2.6.0", "12.6", "12.0", False),
        ("2.7.0", "12.6", "10.0", False),
        ("2.6.0", "12.4", "9.0", True),
        ("2.0.0", "11.7", "9.0", False),
        ("2.13.0", "13.0", "7.0", False),
        ("2.13.0", "12.8", "7.0", True),
        ("2.13.0", "13.0", "7.5", True),
        ("2.13.0", "13.0", "", True),
    ],
)
def test_compute_capabilities(torch, cuda, cap, fine):
    assert (faults(torch, cuda, gpu("580.1", cap)) == "") is fine


def test_other_ends_of_the_table():
    assert faults("2.13.0", None) == ""
    assert "without CUDA" in faults("2.13.0+cpu", None, gpu())
    assert cuda_faults({}, [gpu()]) == []
    two = cuda_faults(
        {"torch": "2.13", "cuda": "13.0"}, [gpu("570.1", index=0), gpu("570.1", index=1)]
    )
    assert len(two) == 1


def test_what_nvidia_smi_says():
    text = "0, NVIDIA H100 80GB HBM3, 580.65.06, 9.0\n1, Tesla, V100, 535.1, 7.0\nno devices\n"
    assert parse_gpus(text) == [
        GpuFacts(0, "NVIDIA H100 80GB HBM3", "580.65.06", "9.0"), GpuFacts(1, "Tesla, V100", "535.1", "7.0"),
    ]  # fmt: skip
