"""A small block that moves, replaced by one permanent line per task."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from gputasks.report import text
from gputasks.report.faces import Face
from gputasks.report.glyphs import spell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gputasks.report.screen import Screen
    from gputasks.report.stream import Stream
    from gputasks.report.view import TaskView


class LiveFace(Face):
    """Permanent lines with a block below them, which starts with the first task that runs.

    Not earlier: a no-op does without, and doit may be about to fork.  It is drawn only from the
    reporter's tick, which is the only clock.
    """

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self._screen: Screen | None = None
        self._turn = 0

    def say(self, line: str) -> None:
        """Above the block."""
        if self._screen is None:
            super().say(line)
        else:
            self._screen.above(spell(text.clean(line), self.glyphs))

    def started(self, view: TaskView, reasons: Sequence[str]) -> None:
        """A task starts, and with the first one the block: before its action looks at stdout."""
        if self._screen is None:
            from gputasks.report.screen import Screen

            self._screen = Screen(self.stream.raw, colour=not os.environ.get("NO_COLOR"))
            self._screen.take()
        super().started(view, reasons)

    def tick(self, views: Sequence[TaskView]) -> None:
        """Draw the block anew; nothing while a task has the terminal, or might print past us."""
        if self._screen is None:
            return
        from gputasks.report.block import Layout

        self._turn += 1
        lines = []
        if not (any(v.owns_terminal for v in views) or all(v.may_print for v in views)):
            columns, rows = self._screen.size()
            lines = Layout(columns, rows, self.glyphs, time.time(), self._turn).lines(views)
        self._screen.draw(lines)

    def without_block(self) -> Face:
        """Permanent lines only."""
        self.close()
        return Face(self.stream)

    def close(self) -> None:
        """Take the block away."""
        if self._screen is not None:
            screen, self._screen = self._screen, None
            screen.close()
