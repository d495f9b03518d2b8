"""Text on a terminal: how wide it is, which characters it may hold.  Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Glyphs(NamedTuple):
    """The characters that we draw with.

    Args:
        full: the part of a bar that is done.
        rest: the part that is not.
        spinner: one after the other, where nobody knows how long it takes.
        ramp: from low to high.
        cut: stands where a line was cut off.

    """

    full: str
    rest: str
    spinner: str
    ramp: str
    cut: str


UNICODE = Glyphs("━", "─", "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "▁▂▃▄▅▆▇█", "…")
ASCII = Glyphs("#", ".", "|/-\\", "_.-=*#", "~")


SPELLED = {ord("·"): "-", ord("…"): "..."}
"""What our messages use besides ASCII."""


def spell(text: str, known: Glyphs) -> str:
    """The text in characters that are known; what is not ours is left alone."""
    return text if known is UNICODE else text.translate(SPELLED)


def glyphs(encoding: str | None, environ: Mapping[str, str]) -> Glyphs:
    """What the terminal can show.

    The stream's encoding is not enough: under `LC_ALL=C` Python writes UTF-8 all the same (PEP
    540).  Where no variable names a locale, as in most containers, the encoding is believed.  The
    kernel's own console has no font with all of these.
    """
    spoken = environ.get("LC_ALL") or environ.get("LC_CTYPE") or environ.get("LANG") or "utf-8"
    names = (spoken.lower(), (encoding or "utf-8").lower())
    knows = all("utf-8" in n or "utf8" in n for n in names) and environ.get("TERM") != "linux"
    return UNICODE if knows else ASCII


def width_of(text: str) -> int:
    """Columns that a text takes."""
    if text.isascii():
        return len(text)
    return sum(map(_width, text))


def _width(char: str) -> int:
    if char.isascii():
        return 1
    import unicodedata

    if unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def crop(text: str, width: int, cut: str) -> str:
    """The text, at most so many columns wide; what does not fit is told by `cut` at its end."""
    if width_of(text) <= width:
        return text
    used, kept = 0, []
    for char in text:
        used += _width(char)
        if used > width - len(cut):
            break
        kept.append(char)
    return "".join(kept) + cut if width > 0 else ""


def fit(parts: list[str], width: int, cut: str, gap: str = "  ") -> str:
    """As many of the parts as find room, in their order; of the first at least its beginning."""
    line = crop(parts[0], width, cut) if parts else ""
    for part in parts[1:]:
        if width_of(line) + len(gap) + width_of(part) > width:
            break
        line += gap + part
    return line
