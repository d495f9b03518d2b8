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


def metric_text(name: str, value: Any) -> str:
    """`val_acc 0.9512`; NaN and infinities as they are."""
    shown = f"{value:.4g}" if isinstance(value, (int, float)) else str(value)[:20]
    return f"{one_line(name)[:30]} {shown}"


def one_line(text: str) -> str:
    """Text of somebody else's without control characters: no escape reaches the terminal."""
    return "".join(c if c.isprintable() else " " for c in text)


def reasons_text(reasons: Sequence[str]) -> str:
    """At most three reasons."""
    shown = ", ".join(one_line(r) for r in reasons[:REASONS])
    more = len(reasons) - REASONS
    return f"{shown} and {more} more" if more > 0 else shown


def finished_text(name: str, event: Event) -> str:
    """`train  succeeded in 41s · checkpoints (1.2 MB) · val_acc 0.95`."""
    took = format_duration(float(event.get("duration_s") or 0))
    parts = [f"{name}  {event.get('outcome')} in {took}"]
    if origin := event.get("restored"):
        parts = [f"{name}  restored from the cache in {took} (run {origin.get('run')})"]
    for artifact in event.get("artifacts") or []:
        size = format_bytes(artifact.get("bytes") or 0)
        parts.append(f"{one_line(str(artifact.get('path')))} ({size})")
    if event.get("checkpoint"):
        parts.append(f"best {one_line(str(event['checkpoint']))}")
    parts += metric_texts(event.get("metrics") or {})
    return " · ".join(parts)


def metric_texts(metrics: Mapping[str, Any]) -> list[str]:
    """The most telling metrics first: of the test, of validation, others, learning rates."""

    def weight(name: str) -> int:
        lowered = name.lower()
        for number, word in enumerate(("test", "val")):
            if word in lowered:
                return number
        return 3 if lowered.startswith("lr") else 2

    chosen = sorted(metrics, key=weight)[:METRICS]
    return [metric_text(name, metrics[name]) for name in chosen]


def event_text(event: Event) -> str | None:
    """The line for an event that matters in a log; None for the others."""
    kind = event["kind"]
    if kind in ("note", "waiting") or event.get("phase") == "environment":
        return one_line(str(event.get("text", "")))
    if kind == "placed":
        return placed_text(event)
    if kind == "attempt":
        resume = f", from {event['resume']}" if event.get("resume") else ""
        return f"attempt {event.get('attempt')}{resume}"
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
        parts.append(f"precision {event['precision']}")
    return "; ".join(parts) or None


def stamp(moment: float) -> str:
    """`12:03:55`, local time."""
    return time.strftime("%H:%M:%S", time.localtime(moment))
