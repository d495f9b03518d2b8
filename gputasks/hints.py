"""What the facts of a run suggest, in a line each.  Pure: data in, text out.

Each line names the values that it comes from, so that it can be checked; without such a fact there
is no line, and what nobody can see from outside (`sync_dist`, say) is left alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gputasks.advice import suggest_num_workers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Facts = Mapping[str, Any]

PRECISIONS = {
    **dict.fromkeys(("16", "fp16", "16-mixed"), "16-mixed"),
    **dict.fromkeys(("bf16", "bf16-mixed"), "bf16-mixed"),
    **dict.fromkeys(("32", "no", "32-true"), "32-true"),
    **dict.fromkeys(("64", "64-true"), "64-true"),
}
"""What people write, and what Lightning makes of it on a device that can do it."""


def hints(facts: Facts) -> list[str]:
    """Lines for the user: first what decides about the result, then what costs time.

    Args:
        facts: `world_size`, `local_world_size` (workers on this node), `cpu_count`, `params` as
            given to the script, `framework` (the `facts` event of its callback); of a run that has
            ended also `outcome` and the `cause` of its failure, and then only what would have
            prevented that is told.  What is not known is left out.

    """
    if facts.get("outcome") is not None:
        return list(_memory(facts))
    return [*_precision(facts), *_batch(facts), *_loaders(facts)]


def _precision(facts: Facts) -> Iterator[str]:
    """Lightning on a CPU turns 16 into bf16-mixed without a word."""
    asked, framework = _param(facts, "precision"), _framework(facts)
    effective, device = framework.get("precision"), framework.get("device")
    expected = PRECISIONS.get(str(asked))
    if effective and expected and expected != effective:
        where = {"cpu": " on CPU", "cuda": " on GPU"}.get(str(device), "")
        yield f"precision={asked} became {effective}{where}"


def _batch(facts: Facts) -> Iterator[str]:
    """DataLoader's batch is per worker: who wrote 64 trains with 256 on four."""
    world, size = _count(facts, "world_size"), _count(_framework(facts), "batch_size")
    steps = _count(_framework(facts), "accumulate_grad_batches") or 1
    asked = _param(facts, "batch_size")
    if not world or not size:
        return
    each, total = f"per-{_unit(facts)} batch {size}, {_workers(world)}", world * size * steps
    if steps > 1:
        factors = f"{world} x {size} x {steps}" if world > 1 else f"{size} x {steps}"
        yield f"global batch is {factors} = {total} ({each}, {steps} batches accumulated)"
    elif world > 1 and type(asked) is int:
        if asked == total:
            yield f"batch_size={asked} is the global batch: {world} x {size} ({each})"
        else:
            yield f"global batch is {world} x {size} = {total} ({each})"
    if type(asked) is int and asked not in (size, total):
        yield f"batch_size={asked}, but the batches of the train loader have {size}"


def _loaders(facts: Facts) -> Iterator[str]:
    """Loader processes: too many for the cores, none for a GPU, made anew each epoch, unpinned."""
    framework = _framework(facts)
    each = _count(framework, "num_workers")
    ranks, cores = _count(facts, "local_world_size"), _count(facts, "cpu_count")
    cuda = framework.get("device") == "cuda"
    if each is None or not ranks or not cores:
        return
    suggested = suggest_num_workers(ranks, cores)
    if each * ranks > cores:
        processes = _many(each * ranks, "loader process", "es")
        advice = f"at most {cores // ranks} each" if suggested else "0 leaves them to the training"
        yield (
            f"num_workers={each} x {_workers(ranks)} = {processes}"
            f" on {_many(cores, 'core')}: {advice}"
        )
    if cuda and each == 0 and suggested:
        yield (
            f"num_workers=0: the GPU waits while a batch is loaded;"
            f" {_many(cores, 'core')} for {_workers(ranks)} allow {suggested} each"
        )
    epochs = _count(framework, "max_epochs")
    if each and epochs and epochs > 1 and framework.get("persistent_workers") is False:
        yield (
            f"persistent_workers=False: {_many(each * ranks, 'loader process', 'es')}"
            f" start anew in each of {epochs} epochs"
        )
    if cuda and framework.get("pin_memory") is False:
        yield "pin_memory=False: the training waits for each copy of a batch to the GPU"


def _memory(facts: Facts) -> Iterator[str]:
    """After a failure: the same global batch with half the memory for it."""
    framework = _framework(facts)
    size, world = _count(framework, "batch_size"), _count(facts, "world_size")
    if "OutOfMemoryError" not in str(facts.get("cause", "")) or not size or not world or size % 2:
        return
    steps = _count(framework, "accumulate_grad_batches") or 1
    yield (
        f"out of memory with a per-{_unit(facts)} batch of {size}: {size // 2} and"
        f" accumulate_grad_batches={steps * 2} keep the global batch of {size * world * steps}"
    )


def _framework(facts: Facts) -> Facts:
    return facts.get("framework") or {}


def _count(facts: Facts, name: str) -> int | None:
    """A whole number; what workers send is not checked before."""
    value = facts.get(name)
    return value if type(value) is int and value >= 0 else None


def _param(facts: Facts, name: str) -> Any:
    """The param of this name, also as `trainer.precision` or `{"trainer": {"precision": …}}`."""
    return _find(facts.get("params") or {}, name)


def _find(params: Mapping[str, Any], name: str) -> Any:
    for key, value in params.items():
        if key == name or key.endswith("." + name):
            return value
    nested = (_find(value, name) for value in params.values() if isinstance(value, dict))
    return next((value for value in nested if value is not None), None)


def _unit(facts: Facts) -> str:
    return "GPU" if _framework(facts).get("device") == "cuda" else "worker"


def _workers(count: int) -> str:
    return _many(count, "worker")


def _many(count: int, noun: str, plural: str = "s") -> str:
    return f"{count} {noun}{plural if count != 1 else ''}"
