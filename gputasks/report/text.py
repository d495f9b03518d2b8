"""From events to one line of plain text each.  Pure."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from gputasks.units import format_bytes, format_duration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gputasks.events import Event

REASONS = 3
METRICS = 4
GPUS = 4
"""So many are shown one by one."""
LOW_PERCENT = 30
LOW_AFTER_S = 120.0


def metric_text(name: str, value: Any) -> str:
    """`val_acc 0.9512`; NaN and infinities as they are."""
    shown = str(value)[:20]
    if isinstance(value, float) or (isinstance(value, int) and abs(value) < 10**20):
        shown = f"{value:.4g}"
    return f"{one_line(name)[:30]} {one_line(shown)}"


def one_line(text: str) -> str:
    """Text of somebody else's without control characters: no escape reaches the terminal."""
    return "".join(c if c.isprintable() else " " for c in text)


def clean(text: str) -> str:
    """Several lines of somebody else's, without what would move the cursor or colour the rest."""
    if text.isprintable():
        return text
    from gputasks.launch.logs import settled

    return "\n".join(one_line(line.expandtabs()) for line in settled(text))


def reasons_text(reasons: Sequence[str]) -> str:
    """At most three reasons."""
    shown = ", ".join(one_line(r) for r in reasons[:REASONS])
    more = len(reasons) - REASONS
    return f"{shown} and {more} more" if more > 0 else shown


def finished_text(name: str, event: Event) -> str:
    """`train  succeeded in 41s · checkpoints (1.2 MB) · val_acc 0.95`."""
    duration_s = float(event.get("duration_s") or 0)
    took = format_duration(duration_s)
    parts = [f"{name}  {event.get('outcome')} in {took}"]
    if origin := event.get("restored"):
        parts = [f"{name}  restored from the cache in {took} (run {origin.get('run')})"]
    for artifact in event.get("artifacts") or []:
        size = format_bytes(artifact.get("bytes") or 0)
        parts.append(f"{one_line(str(artifact.get('path')))} ({size})")
    if event.get("checkpoint"):
        parts.append(f"best {one_line(str(event['checkpoint']))}")
    parts += metric_texts(event.get("metrics") or {})
    parts += idle_texts(event.get("gpus") or [], duration_s)
    return " · ".join(parts)


def idle_texts(gpus: Sequence[Mapping[str, Any]], duration_s: float) -> list[str]:
    """A hint for a long run that left its GPUs with little to do."""
    known = sorted(u for g in gpus if isinstance(u := g.get("utilisation"), (int, float)))
    if not known or duration_s <= LOW_AFTER_S or known[len(known) // 2] >= LOW_PERCENT:
        return []
    why = "reading data, the CPU, or a small batch or model holds it down"
    return [f"GPU utilisation was {known[len(known) // 2]:.0f} % (median): {why}"]


def metric_texts(metrics: Mapping[str, Any], first: str = "") -> list[str]:
    """The most telling metrics first: one by choice, of the test, of validation, others, rates."""

    def weight(name: str) -> int:
        if name == first:
            return -1
        lowered = name.lower()
        for number, word in enumerate(("test", "val")):
            if word in lowered:
                return number
        return 3 if lowered.startswith("lr") else 2

    chosen = sorted(metrics, key=weight)[:METRICS]
    return [metric_text(name, metrics[name]) for name in chosen]


def gpu_texts(gpus: Sequence[Mapping[str, Any]]) -> list[str]:
    """`gpu 0 87% 12.3/40.0 GiB` each, or of many the least, the median and the most."""
    if len(gpus) <= GPUS:
        return [_gpu_text(g) for g in gpus]
    texts = [f"{len(gpus)} gpus"]
    used = sorted(u for g in gpus if isinstance(u := g.get("util"), (int, float)))
    if used:
        texts.append(f"{used[len(used) // 2]:.0f}% (from {used[0]:.0f} to {used[-1]:.0f}%)")
    memory = sorted(m for g in gpus if isinstance(m := g.get("mem_mib"), (int, float)))
    if memory:
        total = max(float(g.get("mem_total_mib") or 0) for g in gpus)
        texts.append(f"{memory[0] / 1024:.1f} to {memory[-1] / 1024:.1f} of {total / 1024:.1f} GiB")
    return texts


def _gpu_text(gpu: Mapping[str, Any]) -> str:
    parts = [f"gpu {one_line(str(gpu.get('id')))}"]
    if isinstance(gpu.get("util"), (int, float)):
        parts.append(f"{gpu['util']:.0f}%")
    if isinstance(gpu.get("mem_mib"), (int, float)):
        total = gpu.get("mem_total_mib")
        of = f"/{total / 1024:.1f}" if isinstance(total, (int, float)) else ""
        parts.append(f"{gpu['mem_mib'] / 1024:.1f}{of} GiB")
    return " ".join(parts)


def event_text(event: Event) -> str | None:
    """The line for an event that matters in a log; None for the others."""
    kind = event["kind"]
    if kind in ("note", "waiting") or event.get("phase") == "environment":
        return one_line(str(event.get("text", "")))
    if kind == "placed":
        return placed_text(event)
    if kind == "attempt":
        resume = f", from {event['resume']}" if event.get("resume") else ""
        return f"attempt {event.get('attempt')}{one_line(resume)}"
    if kind == "facts":
        return facts_text(event)
    return None


def placed_text(event: Event) -> str | None:
    """`2 workers on hal, gloo`; nothing for a plain command without GPUs."""
    nodes = event.get("nodes") or []
    gpus = [g for n in nodes for g in n.get("gpus") or []]
    world, backend = event.get("world_size"), event.get("backend")
    if not backend and not gpus:
        return None
    where = ", ".join(str(n.get("node")) for n in nodes)
    shown = ", ".join(str(g.get("id")) if isinstance(g, dict) else str(g) for g in gpus)
    parts = [f"{world} worker{'s' if world != 1 else ''} on {where}"]
    parts += [f"GPU {shown}"] if gpus else []
    parts += [str(backend)] if backend else []
    return ", ".join(parts)


def facts_text(event: Event) -> str | None:
    """`batch 32 per worker, 64 in all; precision 32-true`."""
    parts = []
    if event.get("batch_size"):
        parts.append(
            f"batch {event['batch_size']} per worker, {event.get('global_batch_size')} in all"
        )
    if event.get("precision"):
        parts.append(f"precision {one_line(str(event['precision']))}")
    return "; ".join(parts) or None


def stamp(moment: float) -> str:
    """`12:03:55`, local time."""
    return time.strftime("%H:%M:%S", time.localtime(moment))
