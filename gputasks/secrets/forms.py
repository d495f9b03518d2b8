"""The ways in which a value may be spelt in a log: raw, base64, in an URL, in JSON, as repr.

Each is a byte string to look for.  Which of them a script will use nobody knows, so all are looked
for; most values are words for which several of them are the same.
"""

from __future__ import annotations

import base64
import json
import os
from urllib.parse import quote, quote_plus

LEAST = 4
"""Shorter values are in every log by chance: hiding them would blank it, and so tell them."""

LEAST_LINE = 8
"""Lines of a value are hidden one by one from this length on."""

_WRAPPED = (64, 76)
"""Columns at which PEM, `base64` and MIME break lines."""


def forms(value: str) -> set[bytes]:
    """Everything to look for; nothing for a value that is too short."""
    found: set[bytes] = set()
    # A file ends with a line break, and whoever reads it strips that.
    for text in {value, value.strip()}:
        if len(text) >= LEAST:
            found |= _of_text(text)
    return {form for form in found if len(form) >= LEAST}


def _of_text(text: str) -> set[bytes]:
    raw = os.fsencode(text)
    lines = {line.strip() for line in text.splitlines()}
    spelt = {text, *(line for line in lines if len(line) >= LEAST_LINE)}
    found = {os.fsencode(one) for one in spelt}
    for one in spelt:
        found |= {os.fsencode(form) for form in _escaped(one)}
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        whole = encode(raw)
        found |= {whole, whole.rstrip(b"=")}
        found |= {_inside(encode, raw, before) for before in range(3)}
        for width in _WRAPPED:
            cut = [whole[i : i + width] for i in range(0, len(whole), width)]
            found |= {part for part in cut if len(part) >= LEAST_LINE}
    return found


def _escaped(text: str) -> set[str]:
    plain = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    percent = {quote(os.fsencode(text)), quote(os.fsencode(text), safe=""),
               quote_plus(os.fsencode(text))}  # fmt: skip
    return {
        *percent,
        *(_lower_hex(form) for form in percent),
        json.dumps(plain)[1:-1],
        json.dumps(plain, ensure_ascii=False)[1:-1],
        repr(text)[1:-1],
        repr(os.fsencode(text))[2:-1],
    }


def _lower_hex(text: str) -> str:
    """`%2f` for `%2F`: both are right, and both are written."""
    first, *parts = text.split("%")
    return "%".join([first, *(part[:2].lower() + part[2:] for part in parts)])


def _inside(encode: object, raw: bytes, before: int) -> bytes:
    """What base64 makes of a value that stands in a longer text, `before` bytes after a third one.

    Characters that hold bits of the neighbours are left out: they are not known.
    """
    assert callable(encode)  # noqa: S101  one of two functions
    text: bytes = encode(b"\0" * before + raw)
    first = -(-8 * before // 6)
    return text[first : 8 * (before + len(raw)) // 6]
