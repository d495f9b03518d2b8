"""`doit bench`: what must hold, as ratios of two things measured side by side in one run.

Machines differ and are shared; a ratio of medians taken in turns hardly does.  Exit code 1 when a
limit is broken.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import output
import spine
import storage

import images

BENCHES = {
    "noop": spine.bench_noop,
    "status": spine.bench_status,
    "dataset": spine.bench_dataset,
    "hash": spine.bench_hash,
    "train": spine.bench_train,
    "restore": storage.bench_restore,
    "store": storage.bench_store,
    "image_noop": images.bench_image_noop,
    "image_cached": images.bench_image_cached,
    "image_memory": images.bench_image_memory,
    **output.BENCHES,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="*", help=f"some of: {' '.join(BENCHES)} [all]")
    broken = 0
    print(f"{'ratio':>7} {'limit':>6}  {'ours':>20} {'base':>16}  claim")
    for name in parser.parse_args().name or BENCHES:
        with tempfile.TemporaryDirectory(prefix="gputasks-bench-") as folder:
            row = BENCHES[name](Path(folder))
        if isinstance(row, str):
            print(f"{'-':>7} {'-':>6}  {name} skipped: {row}", flush=True)
            continue
        broken += not row.holds
        mark = "" if row.holds else "  BROKEN"
        print(
            f"{row.ratio:7.2f} {row.limit:6.2f}  {row.ours:>20} {row.base:>16}  {row.claim}{mark}",
            flush=True,
        )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
