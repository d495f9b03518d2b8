"""`gputasks plan [TASK…]`: what would run, in order, with what, for how long; nothing is run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from gputasks.cli.graph import known, load
from gputasks.cli.why import own_causes
from gputasks.doit_plugin.verdicts import UpToDate
from gputasks.errors import GputasksError
from gputasks.fingerprint import Digests
from gputasks.run.forecast import forecast, shown_command
from gputasks.units import format_bytes, format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from doit.dependency import Dependency
    from doit.task import Task

Step = dict[str, Any]


def plan(names: list[str], *, as_json: bool, dodo: str) -> int:
    """Print the steps.

    Raises:
        ConfigError: dodo.py is faulty, or there is no such task.

    """
    tasks, database, default = load(dodo)
    selected = [known(tasks, n, dodo) for n in names or default or _outermost(tasks)]
    steps: dict[str, Step] = {}
    for task in selected:
        for each in _order(task, tasks, set()):
            if each.name not in steps:
                steps[each.name] = _step(each, tasks, database, steps)
    shown = [s for s in steps.values() if s["action"] != "group"]
    if as_json:
        print(json.dumps(shown, indent=1, default=str))
        return 0
    for step in shown:
        for line in _lines(step):
            print(line)
    print(_summary(shown))
    return 0


def _outermost(tasks: dict[str, Task]) -> list[str]:
    """What `doit` alone would run: everything but subtasks."""
    return [n for n, t in tasks.items() if t.subtask_of is None]


def _order(task: Task, tasks: dict[str, Task], seen: set[str]) -> Iterator[Task]:
    if task.name in seen:
        return
    seen.add(task.name)
    for name in [*task.task_dep, *task.setup_tasks]:
        yield from _order(tasks[name], tasks, seen)
    yield task


def _step(
    task: Task, tasks: dict[str, Task], database: Dependency, before: dict[str, Step]
) -> Step:
    if not task.actions:
        return {"task": task.name, "action": "group"}
    moving = [
        n for n in task.task_dep if before.get(n, {}).get("action") not in (None, "none", "group")
    ]
    try:
        reasons = [c["text"] for c in own_causes(task, tasks, database)]
    except GputasksError as error:
        # An input that an earlier step makes is not there yet.
        if not moving:
            return {"task": task.name, "action": "fail", "reasons": [], "faults": [error.message]}
        reasons = []
    step: Step = {"task": task.name, "action": "none", "reasons": reasons}
    if not reasons and moving:
        step["action"] = "maybe"
        step["after"] = moving
    ours = next((u for u, _, _ in task.uptodate if isinstance(u, UpToDate)), None)
    if not reasons and not moving:
        return step
    if ours is None:
        return {**step, "action": step["action"] if not reasons else "run"}
    if ours.verdict is not None:
        forced = any(c["kind"] == "forgotten" for c in ours.verdict.causes)
        digests = Digests.shared(ours.layout)
        told = forecast(
            ours.asked, task.name, ours.verdict.inputs, ours.layout, digests, forced=forced
        )
        made = {path for n in moving for path in tasks[n].targets}
        told["faults"] = [f for f in told.get("faults", []) if not any(p in f for p in made)]
        step = {**told, **step, "action": step["action"] if not reasons else told["action"]}
    return step


_WORDS = {
    "run": "would run",
    "restore": "would be restored from the cache",
    "none": "up to date",
    "maybe": "would run if what comes before it leaves something else",
    "fail": "cannot run",
}


def _lines(step: Step) -> Iterator[str]:
    yield f"{step['task']}: {_WORDS[step['action']]}"
    for reason in step.get("reasons", []):
        yield f"  why: {reason}"
    for fault in step.get("faults", []):
        yield f"  but: {fault}"
    if "argv" not in step:
        return
    yield f"  argv: {shown_command(step['argv'])}"
    if step.get("image"):
        yield f"  image: {step['image']}"
    for place in step["placement"]:
        gpus = ", ".join(g["id"] for g in place["gpus"])
        ranks = len(place["ranks"])
        workers = f"{ranks} worker{'s' if ranks != 1 else ''}"
        backend = f", {step['backend']}" if step["backend"] else ""
        yield f"  on: {place['node']}, {workers}, {f'GPU {gpus}' if gpus else 'no GPU'}{backend}"
    if step["env"]:
        yield f"  env: {', '.join(step['env'])}"
    if step["secrets"]:
        yield f"  secrets: {', '.join(step['secrets'])}"
    if batch := step["batch"]:
        yield f"  batch: {batch['per_worker']} per worker, {batch['global']} in all"
    if step["resume"]:
        yield f"  resumes from: {step['resume']}"
    expected = step["expected_s"]
    if expected is not None:
        yield f"  takes: about {format_duration(expected)}, as before"
    disk = step["disk"]
    if disk["needed"]:
        yield f"  disk: {format_bytes(disk['needed'])} needed, {format_bytes(disk['free'])} free"


def _summary(steps: list[Step]) -> str:
    count = {w: sum(s["action"] == w for s in steps) for w in _WORDS}
    parts = [f"{count['run']} to run"]
    parts += [f"{count['maybe']} that may follow"] if count["maybe"] else []
    parts += [f"{count['restore']} to restore"] if count["restore"] else []
    parts += [f"{count['fail']} that cannot"] if count["fail"] else []
    parts.append(f"{count['none']} up to date")
    known = [s["expected_s"] for s in steps if s["action"] == "run" and s.get("expected_s")]
    time = f"; about {format_duration(sum(known))}" if known else ""
    return ", ".join(parts) + time
