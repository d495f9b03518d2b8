"""Edges that doit cannot see, found before anything starts.

doit joins tasks by equal strings: `out/f` is no edge to the producer of `out`, nor is `./out`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gputasks.errors import ConfigError, MachineError, raise_all
from gputasks.receipts import receipt as receipts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from doit.task import Task

    from gputasks.layout import Layout

_checked: set[int] = set()


def check(tasks: Mapping[str, Task]) -> None:
    """Refuse a graph in which an input lies inside another task's artifact, or is spelt otherwise.

    Raises:
        ConfigError: naming the producer and the right way, all faults at once.

    """
    if id(tasks) in _checked:
        return
    _checked.add(id(tasks))
    raise_all(list(_faults(tasks)))


def _faults(tasks: Mapping[str, Task]) -> Iterator[ConfigError]:
    producers = {t: task.name for task in tasks.values() for t in task.targets}
    ours = {
        t: task.name for task in tasks.values() if task.meta and "gputasks" in task.meta
        for t in task.targets
    }  # fmt: skip
    if not ours:
        return
    for path, name in ours.items():
        outer = _enclosing(path, ours)
        if outer:
            yield ConfigError(
                f"artifact `{path}` of `{name}` lies inside `{outer}` of `{ours[outer]}`",
                facts=["before a fresh run an artifact is moved aside with all that is in it"],
                hint="give each task a folder of its own",
            )
    for task in tasks.values():
        for dep in task.file_dep:
            if dep in producers:
                continue
            plain = os.path.normpath(dep)
            if plain in producers:
                maker = producers[plain]
                yield ConfigError(
                    f"`{task.name}` depends on `{dep}`, which `{maker}` makes as `{plain}`",
                    hint=f'write `file_dep=["{plain}"]`: doit joins tasks by equal paths',
                )
                continue
            parent = _enclosing(plain, ours)
            if parent:
                yield ConfigError(
                    f"`{task.name}` depends on `{dep}`, inside the artifact `{parent}` of"
                    f" `{ours[parent]}`, which doit cannot see",
                    hint=f'depend on all of it, `file_dep=["{parent}"]`, and use `{dep}` as it is',
                )


def _enclosing(path: str, folders: Mapping[str, str]) -> str:
    """The folder among these in which a path lies, or nothing."""
    parent = os.path.dirname(path)
    while parent and parent not in folders and parent != os.path.dirname(parent):
        parent = os.path.dirname(parent)
    return parent if parent in folders else ""


def unfinished_input(task: Task, tasks: Mapping[str, Task], layout: Layout) -> MachineError | None:
    """An input that another of our tasks makes, and has not finished: `doit -s` gets here."""
    producers = {
        t: other for other in tasks.values() if other.meta and "gputasks" in other.meta
        for t in other.targets
    }  # fmt: skip
    for dep in sorted(task.file_dep):
        producer = producers.get(dep)
        if producer is None or producer.name == task.name:
            continue
        image = producer.meta.get("gputasks_image")
        done = (
            os.path.exists(layout.image_receipt(image))
            if image
            else receipts.read(layout, producer.name) is not None
        )
        if not done:
            return MachineError(
                f"`{task.name}` needs `{dep}`, which `{producer.name}` has not finished",
                hint=f"`doit {producer.name}`",
            )
    return None
