"""The course of one number, in little memory however long it goes on.  Pure."""

from __future__ import annotations

import itertools
import math

POINTS = 30


class Trend:
    """At most twice `POINTS` means of equally many values each; shown as `POINTS` or fewer."""

    def __init__(self) -> None:
        self._means: list[float] = []
        self._each = 1
        self._open: list[float] = []

    def add(self, value: float) -> None:
        """The next value; those that are not finite leave no mark."""
        if not math.isfinite(value):
            return
        self._open.append(value)
        if len(self._open) < self._each:
            return
        self._means.append(math.fsum(self._open) / len(self._open))
        self._open = []
        if len(self._means) >= 2 * POINTS:
            pairs = zip(self._means[::2], self._means[1::2], strict=True)
            self._means = [(a + b) / 2 for a, b in pairs]
            self._each *= 2

    def points(self, count: int = POINTS) -> list[float]:
        """The whole course in at most so many points."""
        rest = [math.fsum(self._open) / len(self._open)] if self._open else []
        values = self._means + rest
        if len(values) <= count:
            return values
        edges = [round(i * len(values) / count) for i in range(count + 1)]
        return [math.fsum(values[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]

    def spark(self, ramp: str, count: int = POINTS) -> str:
        """One character per point, from the least to the greatest; nothing for a single point."""
        values = self.points(count)
        if len(values) < 2:
            return ""
        low, high = min(values), max(values)
        if high <= low:
            return ramp[0] * len(values)
        steps = len(ramp) - 1
        return "".join(ramp[round((v - low) / (high - low) * steps)] for v in values)
