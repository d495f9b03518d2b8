"""Before a start: can the leased GPUs run what was built into the image?"""

from __future__ import annotations

import os

import pytest

from gputasks.errors import MachineError
from gputasks.images.receipt import ImageReceipt, write
from gputasks.layout import Layout
from gputasks.run.containers import check_gpus
from gputasks.specs import Gpu, Image, Run
from gputasks.testing import fake_nvidia_smi

GPUS = (Gpu(0, "GPU-a", visible_as="0"), Gpu(1, "GPU-b", visible_as="1"))


@pytest.fixture
def check(tmp_path, monkeypatch):
    layout = Layout(str(tmp_path))

    def run(facts, *, driver="580.65.06", compute_cap="8.0", gpus=GPUS):
        fake_nvidia_smi(
            str(tmp_path / "bin"), ["GPU-a", "GPU-b"], driver=driver, compute_cap=compute_cap
        )
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
        write(
            layout, ImageReceipt("cuda", "image", "r", "0" * 64, "gputasks/cuda:0", {}, facts=facts)
        )
        image = Image("cuda", parent_image="python:3.11.13-slim")
        check_gpus(Run(kind="train", script="t.py", image=image), layout, gpus)

    return run


def test_a_driver_too_old_for_the_cuda_of_the_image_is_told(check):
    facts = {"torch": "2.13.0+cu130", "cuda": "13.0"}
    check(facts)
    with pytest.raises(MachineError, match="needs a driver from 580 on"):
        check(facts, driver="535.161.08")


def test_a_gpu_without_kernels_is_told(check):
    with pytest.raises(MachineError, match="no kernel for GPU 0"):
        check({"torch": "2.6.0+cu124", "cuda": "12.4"}, compute_cap="12.0")


def test_what_is_not_known_or_not_leased_is_no_fault(check):
    check({}, driver="535.161.08")
    check({"torch": "2.13.0+cu130", "cuda": "13.0"}, driver="535.161.08", gpus=())
