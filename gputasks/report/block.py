"""What stands in the live block: from views to lines that no terminal has to wrap.  Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

from gputasks.report.cells import crop, fit
from gputasks.report.trend import POINTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gputasks.report.glyphs import Glyphs
    from gputasks.report.view import TaskView

MOST_ROWS = 16
"""A block that needs more shows two lines per task."""
INDENT = "  "


class Layout:
    """Lines for one moment and one size of the terminal.

    Args:
        columns: how wide a line may be.
        rows: how many lines there may be.
        glyphs: to draw with.
        now: Unix time.
        turn: counts up, moves the spinner.

    """

    def __init__(self, columns: int, rows: int, glyphs: Glyphs, now: float, turn: int) -> None:
        self._columns = max(1, columns)
        self._rows = max(1, rows)
        self._glyphs = glyphs
        self._now = now
        self._turn = turn

    def lines(self, views: Sequence[TaskView]) -> list[Text]:
        """The whole block; tasks that find no room are counted."""
        room = min(self._rows, MOST_ROWS)
        blocks = [self._task(view) for view in views]
        if sum(map(len, blocks)) > room:
            blocks = [block[:2] for block in blocks]
        shown: list[Text] = []
        for number, block in enumerate(blocks):
            last = number == len(blocks) - 1
            if len(shown) + len(block) + (not last) > room:
                shown.append(Text(f"and {len(blocks) - number} more", style="dim"))
                break
            shown += block
        for line in shown:
            # In a window of a few columns even the shortest line is too long.
            line.truncate(self._columns, overflow="crop")
        return shown[: self._rows]

    def _task(self, view: TaskView) -> list[Text]:
        lines = [self._title(view), self._state(view)]
        metrics = self._metrics(view)
        if metrics:
            lines.append(Text(self._indented(metrics)))
        gpus = view.gpu_texts()
        if gpus:
            lines.append(Text(self._indented(gpus), style="dim"))
        return [line for line in lines if line]

    def _indented(self, parts: list[str]) -> str:
        return INDENT + fit(parts, self._columns - len(INDENT), self._glyphs.cut)

    def _title(self, view: TaskView) -> Text:
        rest = INDENT + view.phase_text() + INDENT + view.elapsed(self._now)
        name = crop(view.name, max(8, self._columns - cell_len(rest)), self._glyphs.cut)
        return Text.assemble((name, "bold"), rest)

    def _state(self, view: TaskView) -> Text:
        """Why it waits; or how far it is, as a bar or a spinner with numbers."""
        spinner = self._glyphs.spinner[self._turn % len(self._glyphs.spinner)]
        fraction = view.fraction()
        parts = [*view.rank_texts(self._now), *view.step_texts()]
        if view.waiting:
            head, parts = [(INDENT + spinner, "")], [view.waiting]
        elif fraction is not None:
            size = self._bar_size()
            done = min(size, int(fraction * size + 0.5))
            head = [
                (INDENT + self._glyphs.full * done, "cyan"),
                (self._glyphs.rest * (size - done), "dim"),
            ]
        else:
            head = [(INDENT + spinner, "")]
        used = sum(cell_len(text) for text, _ in head)
        text = fit(parts, self._columns - used - 1, self._glyphs.cut)
        return Text.assemble(*head, f" {text}" if text else "")

    def _bar_size(self) -> int:
        for columns, size in ((30, 5), (60, 10), (120, 20)):
            if self._columns < columns:
                return size
        return 40

    def _metrics(self, view: TaskView) -> list[str]:
        """The loss with its course first."""
        spark = view.trend.spark(self._glyphs.ramp, min(POINTS, max(4, self._columns // 4)))
        first, *others = view.metric_texts() or [""]
        if spark and view.loss_name:
            first = f"{first} {spark}"
        return [first, *others] if first else []
