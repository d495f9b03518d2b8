"""Checkpoints of a real Lightning training, over an interruption and over a changed param."""

from __future__ import annotations

import importlib.util
import os
import signal

import pytest
from conftest import eventually

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not importlib.util.find_spec("pytorch_lightning"), reason="needs Lightning"),
]

SCRIPT = """\
import argparse, os, time
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--ckpt_path", default=None)
args = parser.parse_args()
SCORES = [0.5, 0.9, 0.4, 0.3]  # the second epoch is the best one

class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
    def on_train_epoch_start(self):
        print("epoch", self.current_epoch)
    def training_step(self, batch, batch_idx):
        if self.current_epoch == 3 and args.lr == 1 and args.ckpt_path is None:
            open("waiting", "w").close()
            while not self.trainer.received_sigterm:  # stopped in a later, worse epoch
                time.sleep(0.02)
        return (self.weight - batch).square().mean()
    def validation_step(self, batch, batch_idx):
        self.log("score", SCORES[self.current_epoch])
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=args.lr)

# With `monitor`, Lightning renews last.ckpt only when the best one changes.
best = ModelCheckpoint("ckpt", filename="best-{epoch}", monitor="score", mode="max", save_last=True)
newest = ModelCheckpoint("ckpt", filename="newest", enable_version_counter=False)
trainer = pl.Trainer(max_epochs=4, accelerator="cpu", devices=1, logger=False,
                     callbacks=[best, newest], enable_model_summary=False,
                     enable_progress_bar=False)
loader = torch.utils.data.DataLoader(torch.full((2,), 0.25), batch_size=1)
trainer.fit(Model(), loader, loader, ckpt_path=args.ckpt_path)
"""


def checkpoints(project) -> list[str]:
    return sorted(p.name for p in (project.root / "ckpt").iterdir())


def test_best_of_an_earlier_epoch_is_kept_and_a_fresh_run_starts_empty(project):
    import torch

    def loaded(name):
        return torch.load(project.root / "ckpt" / name, weights_only=True)

    project.write("train.py", SCRIPT)
    dodo = """
        def task_train():
            return gt.train("train.py", params={{"lr": {}}}, args=["--ckpt_path", "{{resume}}"],
                            artifacts=["ckpt"], resources=gt.Resources(gpu_count=0))
    """
    project.dodo(dodo.format(1.0))
    process = project.start()
    eventually((project.root / "waiting").exists, 90, what="the last epoch")
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(60) == 130, project.output(process)
    assert not (project.root / "ckpt").exists()
    kept = project.root / ".gputasks/runs/train/latest/partial/ckpt"
    best = (kept / "best-epoch=1.ckpt").read_bytes()

    resumed = project.doit(timeout=120)
    assert resumed.returncode == 0, resumed.stderr
    assert "resuming from `ckpt/newest.ckpt`" in resumed.stderr
    assert checkpoints(project) == ["best-epoch=1.ckpt", "last.ckpt", "newest.ckpt"]
    assert (project.root / "ckpt/best-epoch=1.ckpt").read_bytes() == best
    assert "best ckpt/best-epoch=1.ckpt" in resumed.stderr
    log = project.gputasks("logs", "train", "--rank", "0").stdout
    assert "epoch 3\n" in log
    assert "epoch 2\n" not in log
    assert loaded("newest.ckpt")["global_step"] == 8

    # B06: Lightning writes last-v1.ckpt beside a last.ckpt that it finds.
    project.dodo(dodo.format(0.25))
    fresh = project.doit(timeout=120)
    assert fresh.returncode == 0, fresh.stderr
    assert "lr: 1.0 -> 0.25" in fresh.stderr
    assert "resuming" not in fresh.stderr
    assert checkpoints(project) == ["best-epoch=1.ckpt", "last.ckpt", "newest.ckpt"]
    for name in checkpoints(project):
        assert loaded(name)["optimizer_states"][0]["param_groups"][0]["lr"] == 0.25, name
    log = project.gputasks("logs", "train", "--rank", "0").stdout
    assert "epoch 0\n" in log
