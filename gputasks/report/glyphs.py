"""The characters that a terminal may hold.  Pure."""

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
