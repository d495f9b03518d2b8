"""The fields of `Resources`, from keywords or from a TOML table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gputasks.checks import values
from gputasks.checks.faults import Faults, shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

KEYS = ("gpu_count", "cpu_count", "memory", "shm_size", "pool_resources", "use_busy_gpus")

_DEPLOYMENT = ("min_replicas", "max_replicas", "autoscaling_metric", "autoscaling_target",
               "max_concurrency")  # fmt: skip
"""ZenML's keys for served models: nothing here serves, so they are refused, not ignored."""


_FOREIGN = {
    **dict.fromkeys(("gpu", "gpus", "num_gpus"), "did you mean `gpu_count`?"),
    **dict.fromkeys(("cpu", "cpus", "num_cpus"), "did you mean `cpu_count`?"),
    "ram": "did you mean `memory`?",
}
"""Words of other tools whose nearest name by letters is another one."""


def resource_fields(extra: Sequence[Any], keys: Mapping[str, Any]) -> dict[str, Any]:
    """Values for every field of `Resources`.

    Raises:
        ConfigError: every fault of the call.

    """
    faults = Faults("`Resources`")
    if extra:
        faults.add(
            f"`Resources` takes no positional arguments; got {len(extra)}",
            hint="name each one: `gt.Resources(gpu_count=…)`",
        )
    fields = checked_fields(faults, keys)
    faults.finish()
    return fields


def checked_fields(faults: Faults, keys: Mapping[str, Any]) -> dict[str, Any]:
    """The same with a collector of the caller's; None stands for what is not asked for."""
    for key in keys:
        if key in _DEPLOYMENT:
            faults.add(f"`{key}` of {faults.owner} is not supported: it is for deployments", key)
    faults.unknown((k for k in keys if k not in _DEPLOYMENT), KEYS, _FOREIGN)
    fields: dict[str, Any] = dict.fromkeys(KEYS)
    for key, value in keys.items():
        if value is None or key not in fields:
            continue
        if key == "gpu_count":
            fields[key] = _gpu_count(faults, value)
        elif key == "cpu_count":
            fields[key] = values.positive(faults, key, value)
        elif key == "pool_resources":
            fields[key] = pool_counts(faults, key, value)
        elif key == "use_busy_gpus":
            fields[key] = values.boolean(faults, key, value)
        else:
            fields[key] = values.memory(faults, key, value)
    fields["pool_resources"] = fields["pool_resources"] or {}
    fields["use_busy_gpus"] = bool(fields["use_busy_gpus"])
    return fields


def _gpu_count(faults: Faults, value: Any) -> int | str | tuple[int, ...] | None:
    if value == "auto" and isinstance(value, str):
        return "auto"
    if _is_count(value, least=0):
        return int(value)
    if isinstance(value, (list, tuple)) and value and all(_is_count(v, least=1) for v in value):
        return tuple(value)
    faults.must(
        "gpu_count",
        f"a whole number from 0 to {values.MAX_COUNT}, a list of such to try in order, or `auto`",
        value,
    )
    return None


def _is_count(value: Any, *, least: int) -> bool:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return whole and least <= value <= values.MAX_COUNT


def pool_counts(faults: Faults, key: str, value: Any) -> dict[str, int] | None:
    """Names of pools with how many units of each."""
    if not hasattr(value, "items"):
        faults.must(key, "a table of names and counts", value)
        return None
    deeper = faults.inside(f"`{key}` of {faults.owner}", key)
    counts = {}
    for name, count in value.items():
        if not isinstance(name, str) or not name or values.has_control(name):
            faults.add(f"{shown(name)} in `{key}` of {faults.owner} is no name", key)
        else:
            checked = values.whole(deeper, name, count, least=1, most=10**9)
            if checked:
                counts[name] = checked
    return counts
