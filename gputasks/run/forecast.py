"""What a run would be, without starting anything: the dry run behind `gputasks plan`.

It makes the same placement and the same command as a run does, from the same functions.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import statistics
from typing import TYPE_CHECKING, Any

from gputasks import history, plan
from gputasks.artifacts import outputs
from gputasks.cache.entries import total_bytes
from gputasks.errors import GputasksError, MachineError
from gputasks.launch.local import Attempt, argv_of
from gputasks.leases.gpus import holders
from gputasks.nodes import local_node
from gputasks.receipts.inputs import resume_digest
from gputasks.run import keeping, preflight
from gputasks.settings.environment import secret_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gputasks.fingerprint import Digests
    from gputasks.layout import Layout
    from gputasks.receipts.inputs import Inputs
    from gputasks.specs import Gpu, GpuCount, Node, Placement, Run

_BATCH = ("batch_size", "per_device_train_batch_size", "train_batch_size", "micro_batch_size")
_RECENT = 5


def forecast(
    run: Run, task: str, inputs: Inputs, layout: Layout, digests: Digests, *, forced: bool = False
) -> dict[str, Any]:
    """Everything that can be told before a start, as data.

    Args:
        run: the definition, options applied.
        task: its name.
        inputs: its fingerprint now.
        layout: of the project.
        digests: of files now.
        forced: the cache and earlier attempts do not count.

    Returns:
        `{"action": "run" | "restore", "argv", "cwd", "image", "placement", "world_size", "backend",
        "env": names, "secrets": names, "batch", "resume", "expected_s", "disk", "faults"}`; what
        cannot be told is None, durations are seconds, sizes bytes.

    """
    root = os.path.abspath(layout.root)
    entry = None if forced else keeping.kept(run, inputs, layout)
    if entry is not None:
        return {"action": "restore", "from_run": entry.run, "disk": _disk(run, layout, task)}
    wanted = run.resources.gpu_count
    node = local_node(gpus=wanted not in (None, 0))
    faults = list(plan.shortfall(run, node))
    python = ""
    try:
        python = preflight.check(run, inputs, root, digests)
    except GputasksError as error:
        faults.append(error.message)
    gpus, notes = _choose(node, wanted, use_busy=run.resources.use_busy_gpus)
    faults += notes
    placement = plan.place(run, node, gpus)
    resume = None if forced else _resume(run, task, inputs, layout)
    attempt = Attempt("RUN", 0, os.path.join(root, layout.run(task, "RUN"), "attempt-0"), resume)
    cwd = os.path.join(root, run.cwd) if run.cwd else root
    image = None
    if run.image is not None:
        from gputasks.run.containers import would_run

        image, argv, said = would_run(run, attempt, layout, python=python)
        faults += said
    else:
        argv = argv_of(run, attempt, root, python or "python")
    return {
        "action": "run",
        "argv": argv,
        "cwd": cwd,
        "image": image,
        "placement": _places(placement),
        "world_size": placement.world_size,
        "backend": plan.backend(placement) if run.kind == "train" else None,
        "env": sorted(run.env),
        "secrets": sorted({n for text in run.env.values() for n in secret_names(text)}),
        "batch": _batch(run.params, placement.world_size),
        "resume": resume,
        "expected_s": _expected(layout, task),
        "disk": _disk(run, layout, task),
        "faults": faults,
    }


def _choose(node: Node, wanted: GpuCount, *, use_busy: bool) -> tuple[Sequence[Gpu], list[str]]:
    """The GPUs that a lease would take now, and what stands in its way."""
    if wanted in (None, 0) or (wanted == "auto" and not node.gpus):
        return (), []
    held: dict[str, str] = {}
    with contextlib.suppress(MachineError):
        held = holders(node.gpus)
    free = [g for g in node.gpus if g.uuid not in held and (use_busy or not g.busy)]
    choices = wanted if isinstance(wanted, tuple) else (wanted,)
    if wanted == "auto":
        return free or node.gpus, [] if free else _waits(node, held, 1)
    counts = [n for n in choices if isinstance(n, int)]
    for count in counts:
        if count <= len(free):
            return free[:count], []
    least = min(counts)
    if least > len(node.gpus):
        return node.gpus, [
            f"not enough GPUs: asked for {least}, this machine shows {len(node.gpus)}"
        ]
    return node.gpus[:least], _waits(node, held, least)


def _waits(node: Node, held: Mapping[str, str], count: int) -> list[str]:
    busy = [f"GPU {g.visible_as}: busy" for g in node.gpus if g.busy and g.uuid not in held]
    names = [f"GPU {g.visible_as}: {held[g.uuid]}" for g in node.gpus if g.uuid in held]
    return [f"would wait for {count} free GPU(s); " + "; ".join([*names, *busy])]


def _places(placement: Placement) -> list[dict[str, Any]]:
    ranks, found = 0, []
    for share in placement.nodes:
        found.append(
            {
                "node": share.node.name,
                "ranks": list(range(ranks, ranks + share.nproc)),
                "gpus": [{"id": g.visible_as, "uuid": g.uuid, "name": g.name} for g in share.gpus],
            }
        )
        ranks += share.nproc
    return found


def _batch(params: Mapping[str, Any], world_size: int) -> dict[str, int] | None:
    """Per worker and in all: DataLoader's `batch_size` is per process under DDP."""
    flat = {**params}
    for value in params.values():
        if isinstance(value, dict):
            flat.update(value)
    per_worker = next((flat[k] for k in _BATCH if type(flat.get(k)) is int), None)
    if per_worker is None:
        return None
    steps = flat.get("accumulate_grad_batches", flat.get("gradient_accumulation_steps", 1))
    steps = steps if type(steps) is int else 1
    return {
        "per_worker": per_worker,
        "accumulate_grad_batches": steps,
        "global": per_worker * steps * world_size,
    }


def _resume(run: Run, task: str, inputs: Inputs, layout: Layout) -> str | None:
    """The checkpoint that an interrupted run with these inputs has left."""
    previous = history.latest(layout, task)
    if (
        not run.resume
        or previous is None
        or previous["outcome"] == "succeeded"
        or previous.get("resume_digest") != resume_digest(inputs, run.resume_params)
    ):
        return None
    folder = layout.run(task, previous["run"])
    kept = os.path.join(folder, "partial")
    places = [a.path if os.path.lexists(a.path) else os.path.join(kept, a.path)
              for a in run.artifacts]  # fmt: skip
    found, _ = outputs.newest_checkpoint(places, ended=history.last_sign_of_life(folder))
    return found and found.removeprefix(kept + os.sep)


def _expected(layout: Layout, task: str) -> float | None:
    """Median duration of the last runs that really ran to their end."""
    durations = [
        r["duration_s"]
        for r in history.newest(layout, task)
        if r["outcome"] == "succeeded" and not r.get("restored") and not r.get("chain")
    ]
    return round(statistics.median(durations[:_RECENT]), 1) if durations else None


def _disk(run: Run, layout: Layout, task: str) -> dict[str, int | None]:
    """Bytes that the artifacts took last time, with a copy for the cache; and what is free."""
    needed: int | None = None
    for record in history.newest(layout, task):
        if record["outcome"] == "succeeded":
            needed = record.get("bytes")
            break
    if needed is None:
        with contextlib.suppress(OSError):
            needed = sum(total_bytes(a.path) for a in run.artifacts if os.path.exists(a.path))
    copies = 2 if run.cache else 1
    free = shutil.disk_usage(layout.root).free
    return {"needed": needed * copies if needed else None, "free": free}


def shown_command(argv: Sequence[str]) -> str:
    """A command line to read and to paste."""
    return shlex.join(argv)
