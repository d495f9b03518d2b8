"""Steps per second over the last moments, and how long the rest will take."""

from __future__ import annotations

import time
from collections import deque

WINDOW_S = 30.0
"""Long enough that a slow step does not frighten, short enough to follow a change."""


class Pace:
    """Fed with the steps done, asked for the rate.

    The window is a moving one: after a resume the steps of the earlier attempt do not count, and a
    validation shows as the slower pace that it is.
    """

    def __init__(self) -> None:
        self._marks: deque[tuple[float, float]] = deque()

    def done(self, step: float) -> None:
        """So many steps are done by now."""
        now = time.monotonic()
        if self._marks and step < self._marks[-1][1]:
            self._marks.clear()  # a new count has begun
        self._marks.append((now, step))
        while len(self._marks) > 2 and now - self._marks[0][0] > WINDOW_S:
            self._marks.popleft()

    @property
    def rate(self) -> float | None:
        """Steps per second, None as long as nothing can be said."""
        if len(self._marks) < 2:
            return None
        (began, first), (now, last) = self._marks[0], self._marks[-1]
        return round((last - first) / (now - began), 3) if now > began and last > first else None

    def eta_s(self, total: float | None) -> float | None:
        """Seconds until `total` steps are done."""
        rate = self.rate
        if rate is None or total is None or not self._marks:
            return None
        return round(max(0.0, total - self._marks[-1][1]) / rate, 1)
