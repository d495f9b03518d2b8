"""`gputasks logs`: the whole log of a worker, by default the one to read first."""

from __future__ import annotations

import os
import re
import shutil
import sys
from typing import Any

from gputasks import history
from gputasks.cli.place import project
from gputasks.cli.status import latest
from gputasks.errors import ConfigError


def logs(
    task: str,
    *,
    run: str | None,
    attempt: int | None,
    rank: int | None,
    output: str | None,
    only_path: bool,
) -> int:
    """Write a log to stdout or to a file, byte for byte.

    Raises:
        ConfigError: there is no such task, run, attempt or worker.

    """
    layout = project()
    record = latest(layout, task) if run is None else history.load(layout, task, run)
    if record is None:
        raise ConfigError(f"task `{task}` has no run `{run}`", hint=f"`ls {layout.runs(task)}`")
    folder = layout.run(task, record["run"])
    path = _log(folder, record, attempt, rank)
    if only_path:
        print(os.path.normpath(path))
        return 0
    with open(path, "rb") as source:
        if output is None:
            sys.stdout.flush()
            shutil.copyfileobj(source, sys.stdout.buffer)
            return 0
        with open(output, "wb") as target:
            shutil.copyfileobj(source, target)
    return 0


def _log(folder: str, record: dict[str, Any], attempt: int | None, rank: int | None) -> str:
    numbers = sorted(
        int(m[1]) for n in os.listdir(folder) if (m := re.fullmatch(r"attempt-(\d+)", n))
    )
    if not numbers:
        raise ConfigError(
            f"run `{record['run']}` of `{record['task']}` ended before anything was started",
            facts=str(record.get("message", "")).splitlines(),
        )
    number = numbers[-1] if attempt is None else attempt
    if number not in numbers:
        raise ConfigError(
            f"run `{record['run']}` has no attempt {number}, its last is {numbers[-1]}"
        )
    base = os.path.join(folder, f"attempt-{number}")
    if record.get("kind") in ("command", "image"):
        return os.path.join(base, "output.log")
    if rank is None:
        entries = record.get("attempts") or []
        failures = entries[number].get("failures") if number < len(entries) else None
        first = (failures or [{}])[0].get("rank")
        rank = 0 if first is None else int(first)
        if failures and first is None:
            return os.path.join(base, "output.log")
    path = os.path.join(base, f"rank-{rank}.log")
    if not os.path.exists(path):
        if rank == 0:
            return os.path.join(base, "output.log")
        raise ConfigError(
            f"run `{record['run']}` has no log of rank {rank}",
            facts=[f"workers: {record.get('world_size', '?')}"],
        )
    return path
