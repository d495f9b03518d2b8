"""Score a checkpoint of `train.py` on the test digits: `score.json`, the same on every run."""

import argparse
import json
import os

import numpy as np
import torch
from train import LitMNIST


def accuracy(checkpoint: str, data: str) -> tuple[float, int]:
    """The share of test digits that are told right, and how many digits there were."""
    model = LitMNIST.load_from_checkpoint(checkpoint, map_location="cpu").eval()
    with np.load(data) as file:
        images = torch.from_numpy(file["test_images"]).float().div(255).unsqueeze(1)
        labels = torch.from_numpy(file["test_labels"])
    with torch.inference_mode():
        right = (model(images).argmax(dim=1) == labels).sum().item()
    return right / len(labels), len(labels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", default="checkpoints/best.ckpt")
    parser.add_argument("--data", default="data/mnist.npz")
    parser.add_argument("--out", default="score.json")
    args = parser.parse_args()
    score, count = accuracy(args.checkpoint, args.data)
    with open(args.out + ".part", "w", encoding="utf-8") as file:
        json.dump({"accuracy": score, "test_digits": count}, file, indent=1)
        file.write("\n")
    os.replace(args.out + ".part", args.out)
    print(f"accuracy {score:.4f} on {count} test digits -> {args.out}")


if __name__ == "__main__":
    main()
