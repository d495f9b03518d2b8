"""Bases for PyTorch on CUDA, by name, each a tag that is never moved to another version.

The wheels of torch carry the CUDA runtime, cuDNN and NCCL; the node brings the driver.  So a slim
Python is enough, and `requirements=["torch==…"]` says the rest.  The larger ones are for code that
compiles CUDA itself, or for those who want the framework in the base.
"""

PYTHON_3_11 = "python:3.11.13-slim-bookworm"
PYTHON_3_12 = "python:3.12.11-slim-bookworm"
PYTHON_3_13 = "python:3.13.5-slim-bookworm"
"""Slim Python on Debian 12, 45 MB compressed."""

PYTORCH_2_7_CUDA_12_6 = "pytorch/pytorch:2.7.1-cuda12.6-cudnn9-runtime"
PYTORCH_2_7_CUDA_12_8 = "pytorch/pytorch:2.7.1-cuda12.8-cudnn9-runtime"
"""torch installed, no compiler, 3 to 4 GB compressed; drivers from 525 on."""

PYTORCH_2_7_CUDA_12_8_DEVEL = "pytorch/pytorch:2.7.1-cuda12.8-cudnn9-devel"
"""With nvcc, 8 GB compressed."""

CUDA_12_8_DEVEL = "nvidia/cuda:12.8.1-cudnn-devel-ubuntu24.04"
"""nvcc and cuDNN without Python."""

CUDA_13_0_DEVEL = "nvidia/cuda:13.0.0-cudnn-devel-ubuntu24.04"
"""nvcc and cuDNN without Python; drivers from 580 on, no GPUs before Turing."""

ALL = {
    name: value
    for name, value in list(globals().items())
    if name.isupper() and isinstance(value, str)
}
"""Every preset by name."""
