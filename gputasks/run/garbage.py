"""What `.gputasks` holds that nobody will ask for again.

Kept in any case: what a task that runs right now needs, the run of each receipt, the newest run of
each task with what a resume needs, and the newest few runs of each.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from gputasks import environments, history
from gputasks.artifacts import aside
from gputasks.cache import sweep
from gputasks.layout import read_json
from gputasks.leases.flock import try_lock
from gputasks.receipts import receipt as receipts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gputasks.cache import Cache
    from gputasks.layout import Layout

DAY_S = 86400.0


class Item(NamedTuple):
    """Something to remove: of what kind, where, how large, and why it may go."""

    kind: str
    path: str
    size: int
    why: str


def items(layout: Layout, *, keep_runs: int, older_than_s: float) -> list[Item]:
    """What may go from the project, without the cache.

    Args:
        layout: of the project.
        keep_runs: newest runs of each task that stay.
        older_than_s: age of what is moved aside before it may go.

    """
    then = time.time() - older_than_s
    found: list[Item] = []
    folder = os.path.join(layout.state, "runs")
    for name in _names(folder):
        found += _runs(layout, unquote(name), keep_runs, then)
    found += _trash(layout, then)
    found += _manifests(layout)
    found += _environments(layout, then)
    for name in _names(layout.state):
        path = os.path.join(layout.state, name)
        if ".damaged-" in name and _written(path) < then:
            found.append(Item("database", path, size_of(path), "damaged, moved aside"))
    return found


def _runs(layout: Layout, task: str, keep: int, then: float) -> Iterator[Item]:
    if _held(layout.lock(task)) or _held(layout.storing(task)):
        return
    folder = layout.runs(task)
    ids = [n for n in _names(folder) if not os.path.islink(os.path.join(folder, n))]
    newest = sorted(ids, key=lambda n: _started(layout, task, n), reverse=True)
    receipt = receipts.read(layout, task)
    latest = history.latest(layout, task)
    last = latest["run"] if latest else None
    kept = {*newest[:keep], last, receipt.run if receipt else None}
    for run_id in newest:
        path = os.path.join(folder, run_id)
        record = history.load(layout, task, run_id)
        if record is None:
            if _written(path) < min(then, time.time() - 3600):
                yield Item("run", path, size_of(path), "it has no record")
        elif run_id not in kept:
            yield Item("run", path, size_of(path), f"{keep} newer runs of `{task}` stay")
        elif run_id != last or (record["outcome"] == "succeeded"):
            for name in ("partial", "broken", "restored"):
                inside = os.path.join(path, name)
                if os.path.lexists(inside):
                    yield Item("partial", inside, size_of(inside), "nothing resumes from it")


def _trash(layout: Layout, then: float) -> Iterator[Item]:
    folder = os.path.join(layout.state, "trash")
    for task in _names(folder):
        for run_id in _names(os.path.join(folder, task)):
            path = os.path.join(folder, task, run_id)
            if _written(path) < then:
                yield Item("trash", path, size_of(path), "what stood in the way of a run")


def _manifests(layout: Layout) -> Iterator[Item]:
    """Lists of folders that no receipt names: they only serve to tell which file has changed."""
    used = set()
    folder = os.path.dirname(layout.receipt("x"))
    for name in _names(folder):
        receipt = read_json(os.path.join(folder, name))
        if isinstance(receipt, dict):
            with contextlib.suppress(KeyError, TypeError, AttributeError):
                digests = [
                    *receipt["inputs"]["files"].values(),
                    *(o["digest"] for o in receipt["outputs"].values()),
                ]
                used |= {d.rpartition(":")[2] for d in digests}
    for name in _names(layout.trees):
        path = os.path.join(layout.trees, name)
        if name not in used and _written(path) < time.time() - DAY_S:
            yield Item("manifest", path, size_of(path), "no receipt names it")


def _environments(layout: Layout, then: float) -> Iterator[Item]:
    """Virtual environments that neither a newest run nor a receipt's had, and that nobody uses.

    In a folder that checkouts share, the runs of the others are not known: there only age counts.
    """
    in_use = set()
    for name in _names(os.path.join(layout.state, "runs")):
        task = unquote(name)
        receipt = receipts.read(layout, task)
        records = [history.latest(layout, task)]
        records += [history.load(layout, task, receipt.run)] if receipt else []
        in_use |= {r["environment"] for r in records if r and r.get("environment")}
    for path, size, used in environments.unused(environments.home(layout), in_use):
        if used < then:
            yield Item("environment", path, size, "no newest run used it")


def cache_items(cache: Cache, *, cap: int, unused_since: float) -> tuple[list[Item], sweep.Surplus]:
    """What may go from the cache, for people and for `sweep.remove`."""
    going = sweep.surplus(cache, cap, unused_since=unused_since)
    size = sum(going.objects.values())
    found = [Item("copy", path, size, "it broke off") for path, size in sweep.leftovers(cache)]
    if going.entries or going.objects:
        what = f"{len(going.entries)} runs, {len(going.objects)} contents"
        found.append(Item("cache", cache.folder, size, f"{what}: over the cap, unused or unnamed"))
    return found, going


def remove(found: list[Item]) -> int:
    """Remove; how many bytes that gave back."""
    freed = 0
    for item in found:
        if item.kind == "environment":
            freed += item.size if environments.remove(item.path) else 0
        elif item.kind != "cache":
            aside.remove(item.path)
            freed += 0 if os.path.lexists(item.path) else item.size
    return freed


def size_of(path: str) -> int:
    """Bytes of a file or of all files in a folder; links are not followed."""
    try:
        total = os.lstat(path).st_size if not os.path.isdir(path) else 0
    except OSError:
        return 0
    for folder, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_size
    return total


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _written(path: str) -> float:
    try:
        return os.lstat(path).st_ctime
    except OSError:
        return time.time()


def _started(layout: Layout, task: str, run_id: str) -> str:
    record = history.load(layout, task, run_id)
    return str(record.get("started", "")) if record else ""


def _held(path: str) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not try_lock(fd)
    finally:
        os.close(fd)
