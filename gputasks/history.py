"""What is known of earlier runs of a task: `runs/TASK/RUN_ID/run.json`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from gputasks.layout import read_json

if TYPE_CHECKING:
    from gputasks.layout import Layout

Record = dict[str, Any]

ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789x"
"""For run ids: nothing that is read as something else; 32 of them, so that bytes divide evenly."""


def latest(layout: Layout, task: str) -> Record | None:
    """The record of the newest run, whatever became of it."""
    try:
        run_id = os.readlink(os.path.join(layout.runs(task), "latest"))
    except OSError:
        return None
    return load(layout, task, run_id)


def newest(layout: Layout, task: str) -> list[Record]:
    """All records of a task, the newest first."""
    try:
        names = os.listdir(layout.runs(task))
    except OSError:
        return []
    records = [r for n in names if n != "latest" for r in [load(layout, task, n)] if r is not None]
    return sorted(records, key=lambda r: str(r.get("started", "")), reverse=True)


def load(layout: Layout, task: str, run_id: str) -> Record | None:
    """The record of one run."""
    record = read_json(os.path.join(layout.run(task, run_id), "run.json"))
    return record if isinstance(record, dict) and "outcome" in record else None


def new_run_id(layout: Layout, task: str) -> str:
    """Four letters and digits that this task has not used."""
    while True:
        run_id = "".join(ALPHABET[b % len(ALPHABET)] for b in os.urandom(4))
        if not os.path.lexists(layout.run(task, run_id)):
            return run_id


def point_latest(layout: Layout, task: str, run_id: str) -> None:
    """Make `runs/TASK/latest` name this run.

    Raises:
        OSError: the state folder cannot be written.

    """
    link = os.path.join(layout.runs(task), "latest")
    temporary = f"{link}.{run_id}"
    os.symlink(run_id, temporary)
    os.replace(temporary, link)


def last_sign_of_life(folder: str) -> float:
    """Unix time of the newest write in a run's folder: when a run ended that could not say so."""
    newest = 0.0
    for base, _, names in os.walk(folder):
        for name in names:
            if name != "run.json":
                newest = max(newest, os.lstat(os.path.join(base, name)).st_mtime)
    return newest
