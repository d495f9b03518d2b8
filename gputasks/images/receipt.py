"""The receipt of an image: `images/NAME.json` holds everything, `images/NAME.digest` what it is.

The second is the target of the task and what trainings depend on.  It says what is in the image
and is rewritten only when that changes: a rebuild that yields the same layers stops there.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, field
from typing import TYPE_CHECKING, Any

from gputasks.frozen import Frozen, spec
from gputasks.layout import read_json, write_json, write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gputasks.layout import Layout

VERSION = 1


@spec
class ImageReceipt(Frozen):
    """What was built.

    Args:
        image: its name.
        task: the task that built it.
        run: id of that run.
        digest: of the inputs, 64 hex digits.
        ref: the content tag, `gputasks/NAME:<16 of them>`.
        inputs: what it was made of.
        content: what it is: a digest over layers and configuration.
        layers: `RootFS.Layers`.
        size: bytes.
        builder: who built it.
        engine: where it was built.
        facts: `python`, `torch`, `cuda` and packages inside.
        pushed: reference by digest in a registry.
        finished: Unix time.
        duration_s: of the build.

    """

    image: str
    task: str
    run: str
    digest: str
    ref: str
    inputs: Mapping[str, Any]
    content: str = ""
    layers: tuple[str, ...] = ()
    size: int = 0
    builder: str = ""
    engine: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    pushed: str = ""
    finished: float = 0.0
    duration_s: float = 0.0
    version: int = VERSION


def read(layout: Layout, name: str) -> ImageReceipt | None:
    """The receipt of an image, or None when there is none or it cannot be read."""
    value = read_json(layout.image_receipt(name))
    if not isinstance(value, dict) or value.get("version") != VERSION:
        return None
    try:
        return ImageReceipt(**value)
    except TypeError:
        return None


def content(receipt: ImageReceipt) -> str:
    """What an image is, for those that are made from it."""
    return receipt.content


def write(layout: Layout, receipt: ImageReceipt) -> None:
    """Put the receipt into place, the digest first: a receipt never promises too much.

    Raises:
        OSError: no space or no permission; the image then counts as not built.

    """
    path = layout.image_digest(receipt.image)
    text = json.dumps({"image": receipt.image, "content": receipt.content}, indent=1).encode()
    if not _holds(path, text + b"\n"):
        write_whole(path, text + b"\n")
    write_json(layout.image_receipt(receipt.image), asdict(receipt))


def withdraw(layout: Layout, name: str) -> None:
    """Take the receipt away before an image is built anew."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(layout.image_receipt(name))


def _holds(path: str, data: bytes) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read() == data
    except OSError:
        return False
