"""Digits with plain torch DDP: `python train.py`, `torchrun train.py` or `doit`, the same script.

An interrupted run goes on in the middle of an epoch and ends with the same weights, bit for bit, as
one that nobody interrupted.
"""

import argparse
import os
import signal

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812  as everybody writes it
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, TensorDataset

try:
    from gputasks import progress
except ImportError:  # the script needs no gputasks

    def progress(**_):
        """Nobody watches."""


SIGTERM_EXIT = 128 + signal.SIGTERM


def network(dropout: float) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 64),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(64, 10),
    )


def digits(path: str, name: str) -> TensorDataset:
    with np.load(path) as file:
        images = torch.from_numpy(file[f"{name}_images"]).float().div(255).unsqueeze(1)
        return TensorDataset(images, torch.from_numpy(file[f"{name}_labels"]))


def start_group() -> torch.device:
    """One process group, whoever started this process; a group of one when nobody did."""
    cuda = torch.cuda.is_available()
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    device = torch.device("cuda", local_rank) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    backend = "nccl" if cuda else "gloo"
    if "RANK" in os.environ:
        dist.init_process_group(backend)
    else:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    return device


class Training:
    """The state that a checkpoint holds, and how it moves on."""

    def __init__(self, args: argparse.Namespace, device: torch.device) -> None:
        self.args, self.device = args, device
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(args.seed)
        self.model = DistributedDataParallel(network(args.dropout).to(device))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.lr)
        self.epoch = self.batch = 0
        # Weights alike on all ranks, dropout not.
        torch.manual_seed(args.seed + 1 + self.rank)
        self.train_set, self.val_set = digits(args.data, "train"), digits(args.data, "val")
        self.sampler = DistributedSampler(self.train_set, seed=args.seed)
        self.stopping = False
        signal.signal(signal.SIGTERM, self.stop_soon)

    def stop_soon(self, *_) -> None:
        """Only notes it: a step that has begun on one rank has to be finished by all."""
        self.stopping = True

    # -- checkpoints -------------------------------------------------------------------------------

    def save(self) -> None:
        """All that the next step depends on, as rank 0's file; whole or not at all."""
        mine = {"cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            mine["cuda"] = torch.cuda.get_rng_state()
        rng = [None] * self.world_size
        dist.all_gather_object(rng, mine)
        if self.rank == 0:
            os.makedirs(self.args.out, exist_ok=True)
            path = os.path.join(self.args.out, "last.pt")
            state = {
                "model": self.model.module.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "epoch": self.epoch,
                "batch": self.batch,
                "rng": rng,
            }
            torch.save(state, path + ".part")
            os.replace(path + ".part", path)
        dist.barrier()

    def load(self, path: str) -> None:
        state = torch.load(path, map_location="cpu", weights_only=True)
        if len(state["rng"]) != self.world_size:
            raise SystemExit(f"{path} is of {len(state['rng'])} workers, not of {self.world_size}")
        self.model.module.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.epoch, self.batch = state["epoch"], state["batch"]
        torch.set_rng_state(state["rng"][self.rank]["cpu"])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(state["rng"][self.rank]["cuda"])
        if self.rank == 0:
            print(f"going on from {path}: epoch {self.epoch}, batch {self.batch}")

    # -- training ----------------------------------------------------------------------------------

    def batches(self) -> list[list[int]]:
        """This rank's batches of the epoch; the same ones whenever they are asked for."""
        self.sampler.set_epoch(self.epoch)
        return list(BatchSampler(self.sampler, self.args.batch_size, drop_last=True))

    def loader(self, batches: list[list[int]]) -> DataLoader:
        return DataLoader(
            self.train_set,
            batch_sampler=batches,
            num_workers=self.args.num_workers,
            pin_memory=self.device.type == "cuda",
            # Each loader draws a seed when it starts.  Drawn from the global generator, it would
            # shift the dropout of a run that starts one loader more: the resumed one.
            generator=torch.Generator().manual_seed(self.args.seed + self.epoch),
        )

    def run(self) -> bool:
        """True when it came to its end, False when it was told to stop; all ranks say the same."""
        if self.epoch == self.args.epochs:
            self.save()  # stopped after its last step: nothing is left to do but to say so
        while self.epoch < self.args.epochs:
            if not self.run_epoch():
                return False
            self.epoch, self.batch = self.epoch + 1, 0
            accuracy = self.validate()
            self.save()
            if self.rank == 0:
                print(f"epoch {self.epoch}/{self.args.epochs}: val_acc {accuracy:.4f}")
                self.report(val_acc=accuracy)
        return True

    def run_epoch(self) -> bool:
        self.model.train()
        batches = self.batches()
        self.steps_per_epoch = len(batches)
        for images, labels in self.loader(batches[self.batch :]):
            logits = self.model(images.to(self.device))
            loss = F.cross_entropy(logits, labels.to(self.device))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.batch += 1
            self.report(loss=loss.detach())
            if self.all_stop():
                self.save()
                return False
        return True

    def all_stop(self) -> bool:
        """The signal reaches the ranks at different steps: they stop at the first one's next."""
        flag = torch.tensor(int(self.stopping), device=self.device)
        dist.all_reduce(flag, dist.ReduceOp.MAX)
        return bool(flag)

    @torch.inference_mode()
    def validate(self) -> float:
        """Every rank looks at its share of the digits."""
        self.model.eval()
        mine = slice(self.rank, None, self.world_size)
        images, labels = (part[mine].to(self.device) for part in self.val_set.tensors)
        right = (self.model.module(images).argmax(dim=1) == labels).sum()
        dist.all_reduce(right)
        return right.item() / len(self.val_set)

    def report(self, **metrics) -> None:
        epoch = min(self.epoch, self.args.epochs - 1)
        progress(
            step=self.epoch * self.steps_per_epoch + self.batch,
            total=self.args.epochs * self.steps_per_epoch,
            epoch=epoch,
            max_epochs=self.args.epochs,
            **metrics,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--dropout", type=float, default=0.2)
    parser.add_argument("--batch_size", type=int, default=32, help="per worker")
    parser.add_argument("--num_workers", type=int, default=0, help="data loaders per worker")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--data", default="data/mnist.npz")
    parser.add_argument("--out", default="checkpoints")
    resume = os.environ.get("GPUTASKS_RESUME_CKPT", "")
    parser.add_argument("--resume", metavar="PATH", default=resume, help="checkpoint to go on from")
    args = parser.parse_args()

    training = Training(args, start_group())
    if args.resume:
        training.load(args.resume)
    done = training.run()
    dist.destroy_process_group()
    if not done:
        raise SystemExit(SIGTERM_EXIT)


if __name__ == "__main__":
    main()
