"""References of images: which one is meant has to be said."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gputasks.checks.faults import Faults

_REFERENCE = re.compile(
    r"(?:[\w.-]+(?::\d+)?/)?[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*"
    r"(?P<tag>:[\w][\w.-]{0,127})?(?P<digest>@sha256:[0-9a-f]{64})?",
    re.ASCII,
)


def checked_reference(faults: Faults, value: Any) -> str | None:
    """The reference of an image, which says which one: by a tag or a digest."""
    if isinstance(value, (list, tuple)):
        faults.add(
            f"`image` of {faults.owner} is a list: a task runs in one image",
            "image",
            hint="one task for each image: `name=` makes them subtasks",
        )
        return None
    if not isinstance(value, str):
        faults.must("image", "a `gt.Image` or the reference of an image", value)
        return None
    found = _REFERENCE.fullmatch(value)
    if found is None:
        faults.must("image", "a `gt.Image` or the reference of an image, `NAME:TAG`", value)
        return None
    if not found["tag"] and not found["digest"]:
        faults.add(
            f"`image` of {faults.owner} is `{value}`, which does not say which one",
            "image",
            hint=f"a tag or a digest: `{value}:1.0`, `{value}@sha256:…`",
        )
        return None
    return value
