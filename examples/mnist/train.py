"""LitMNIST with DDP: plain Lightning, which also runs as `python train.py` and under `torchrun`."""

# ruff: noqa: ARG002  the arguments of hooks are given by Lightning

import argparse
import os

import numpy as np
import pytorch_lightning as pl
import torch
import torch.nn.functional as F  # noqa: N812  as everybody writes it
from pytorch_lightning.callbacks import LearningRateMonitor, ModelCheckpoint
from pytorch_lightning.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

MEAN, STD = 0.1307, 0.3081  # of the pixels of the full MNIST


class MNISTData(pl.LightningDataModule):
    """The `.npz` that `prepare.py` writes; `batch_size` is per worker."""

    def __init__(self, path: str, batch_size: int = 16, num_workers: int = 1) -> None:
        super().__init__()
        self.path, self.batch_size, self.num_workers = path, batch_size, num_workers

    def setup(self, stage: str) -> None:
        with np.load(self.path) as file:
            self.sets = {name: self.dataset(file, name) for name in ("train", "val", "test")}

    def dataset(self, file, name: str) -> TensorDataset:
        images = torch.from_numpy(file[f"{name}_images"]).float().div(255).unsqueeze(1)
        return TensorDataset(images, torch.from_numpy(file[f"{name}_labels"]))

    def loader(self, name: str) -> DataLoader:
        return DataLoader(
            self.sets[name],
            batch_size=self.batch_size,
            shuffle=name == "train",
            num_workers=self.num_workers,
            persistent_workers=self.num_workers > 0,
            pin_memory=torch.cuda.is_available(),
        )

    def train_dataloader(self) -> DataLoader:
        return self.loader("train")

    def val_dataloader(self) -> DataLoader:
        return self.loader("val")

    def test_dataloader(self) -> DataLoader:
        return self.loader("test")


class LitMNIST(pl.LightningModule):
    """A small convolutional network."""

    def __init__(self, lr: float = 1e-3, hidden: int = 128, dropout: float = 0.1) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.model = nn.Sequential(
            nn.Conv2d(1, 32, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64 * 7 * 7, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, 10),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model((x - MEAN) / STD)

    def training_step(self, batch, batch_idx: int) -> torch.Tensor:
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx: int) -> None:
        self.evaluate(batch, "val")

    def test_step(self, batch, batch_idx: int) -> None:
        self.evaluate(batch, "test")

    def evaluate(self, batch, stage: str) -> None:
        x, y = batch
        logits = self(x)
        accuracy = (logits.argmax(dim=1) == y).float().mean()
        self.log(f"{stage}_loss", F.cross_entropy(logits, y), sync_dist=True)
        self.log(f"{stage}_acc", accuracy, prog_bar=True, sync_dist=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.8)
        return [optimizer], [scheduler]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--max_epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--batch_size", type=int, default=16, help="per worker")
    parser.add_argument("--num_workers", type=int, default=1, help="data loaders per worker")
    parser.add_argument("--precision", default="32-true")
    parser.add_argument("--accumulate_grad_batches", type=int, default=1)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--data", default="data/mnist.npz")
    parser.add_argument("--out", default="checkpoints")
    parser.add_argument("--ckpt_path", default="", help="checkpoint to go on from")
    args = parser.parse_args()

    pl.seed_everything(args.seed, workers=True)
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    best = ModelCheckpoint(
        dirpath=args.out, filename="best", monitor="val_acc", mode="max", save_last=True
    )
    trainer = pl.Trainer(
        # "auto" would take one CPU process per rank for the whole world.
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        num_nodes=int(os.environ.get("GROUP_WORLD_SIZE", "1")),
        strategy="ddp" if world_size > 1 else "auto",
        max_epochs=args.max_epochs,
        precision=args.precision,
        accumulate_grad_batches=args.accumulate_grad_batches,
        callbacks=[best, LearningRateMonitor(logging_interval="epoch")],
        logger=CSVLogger(args.out, name="logs", version=""),
        log_every_n_steps=10,
    )
    data = MNISTData(args.data, args.batch_size, args.num_workers)
    trainer.fit(LitMNIST(lr=args.lr), data, ckpt_path=args.ckpt_path or None)
    (result,) = trainer.test(ckpt_path="best", datamodule=data, verbose=False)
    if trainer.is_global_zero:
        print(f"test accuracy {result['test_acc']:.4f}, best checkpoint {best.best_model_path}")


if __name__ == "__main__":
    main()
