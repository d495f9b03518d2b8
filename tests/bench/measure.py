"""How things are measured: ratios of medians, taken in turns."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PYTHON = sys.executable
REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass
class Row:
    """One claim: `ours` against `base`, with what the limit allows."""

    claim: str
    ours: str
    base: str
    ratio: float
    limit: float

    @property
    def holds(self) -> bool:
        return self.ratio <= self.limit


def environ() -> dict[str, str]:
    env = {
        k: v
        for k, v in os.environ.items()
        if k not in ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
    }
    env["PYTHONPATH"] = str(REPOSITORY)
    return env


def run(argv: list[str], cwd: Path) -> float:
    began = time.perf_counter()
    subprocess.run(
        argv,
        cwd=cwd,
        env=environ(),
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return time.perf_counter() - began


def in_turns(times: int, *work: Callable[[], float]) -> list[float]:
    """Medians of several things, measured in turns so that noise meets all alike."""
    for each in work:
        each()
    seen: list[list[float]] = [[] for _ in work]
    for _ in range(times):
        for one, each in zip(seen, work, strict=True):
            one.append(each())
    return [statistics.median(s) for s in seen]


def write(folder: Path, name: str, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(textwrap.dedent(text))
