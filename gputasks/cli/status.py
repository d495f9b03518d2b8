"""`gputasks status`: the latest run of each task, from its record alone."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from gputasks import history
from gputasks.cli.place import project
from gputasks.errors import ConfigError, did_you_mean
from gputasks.leases.flock import clear_owner, open_lock, try_lock
from gputasks.units import format_duration

if TYPE_CHECKING:
    from gputasks.layout import Layout


def known_tasks(layout: Layout) -> list[str]:
    """Tasks that have ever run."""
    folder = os.path.join(layout.state, "runs")
    return sorted(unquote(n) for n in os.listdir(folder)) if os.path.isdir(folder) else []


def latest(layout: Layout, task: str) -> dict[str, Any]:
    """The record of the latest run.

    Raises:
        ConfigError: the task has never run.

    """
    record = history.latest(layout, task)
    if record is None:
        names = known_tasks(layout)
        hint = did_you_mean(task, names) if names else "`doit` runs the tasks of dodo.py"
        raise ConfigError(f"task `{task}` has never run here", hint=hint)
    if record["outcome"] == "running" and not held(layout, task):
        record["outcome"] = "lost"
    return record


def held(layout: Layout, task: str) -> bool:
    """True while a run, or the guard that cleans up after it, has the task's lock."""
    try:
        fd = os.open(layout.lock(task), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not try_lock(fd)
    finally:
        os.close(fd)


def status(tasks: list[str], *, as_json: bool) -> int:
    """Print a line per task: outcome, run, when, how long, what it left."""
    layout = project()
    names = tasks or known_tasks(layout)
    records = []
    for name in names:
        try:
            records.append(latest(layout, name))
        except ConfigError:
            if tasks:
                raise
    if as_json:
        print(json.dumps(records, indent=1))
        return 0
    width = max((len(r["task"]) for r in records), default=0)
    for record in records:
        print(_line(record, width).rstrip())
    return 0


def _line(record: dict[str, Any], width: int) -> str:
    when = str(record.get("started", ""))[:19].replace("T", " ") + "Z"
    took = format_duration(record["duration_s"]) if "duration_s" in record else "-"
    metrics = record.get("metrics") or {}
    shown = " ".join(
        f"{k} {v:.4g}" for k, v in list(metrics.items())[:3] if isinstance(v, (int, float))
    )
    message = str(record.get("message", "")).splitlines()
    tail = message[0] if message and record["outcome"] != "succeeded" else shown
    name, outcome, run = record["task"], record["outcome"], record["run"]
    return f"{name:<{width}}  {outcome:<11}  {run}  {when}  {took:>6}  {tail}"


def unlock(task: str) -> int:
    """Clear the note of a dead owner on another machine.

    Raises:
        ConfigError: the lock is held by a living process of this machine.

    """
    layout = project()
    fd = open_lock(layout.lock(task))
    try:
        if not try_lock(fd):
            raise ConfigError(
                f"task `{task}` is running on this machine", hint=f"`gputasks status {task}`"
            )
        clear_owner(fd)
    finally:
        os.close(fd)
    print(f"{task}: unlocked")
    return 0
