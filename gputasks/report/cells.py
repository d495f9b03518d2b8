"""Text that fits: rich knows how wide characters are.  Pure."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size


def crop(text: str, width: int, cut: str) -> str:
    """The text, at most so many columns wide; what does not fit is told by `cut` at its end."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(0, width - cell_len(cut))) + cut if width > 0 else ""


def fit(parts: list[str], width: int, cut: str, gap: str = "  ") -> str:
    """As many of the parts as find room, in their order; of the first at least its beginning."""
    line = crop(parts[0], width, cut) if parts else ""
    for part in parts[1:]:
        if cell_len(line) + len(gap) + cell_len(part) > width:
            break
        line += gap + part
    return line
