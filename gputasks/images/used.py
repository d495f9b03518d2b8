"""The image that a task uses: under which reference the engine knows it, and what identifies it."""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING, Any

from gputasks.errors import ConfigError, MachineError
from gputasks.layout import read_json
from gputasks.specs import Image

if TYPE_CHECKING:
    from gputasks.layout import Layout

QUICK_S = 2.0
"""How long `doit list` waits for an engine that may hang."""


def image_name(image: Image | str) -> str:
    """As people call it."""
    return image.name if isinstance(image, Image) else image


def image_receipt(image: Image | str, layout: Layout) -> dict[str, Any]:
    """What `gt.build` left of an image, empty when it has not built it."""
    if not isinstance(image, Image):
        return {}
    found = read_json(os.path.join(layout.state, "images", f"{image.name}.json"))
    return found if isinstance(found, dict) else {}


def image_reference(image: Image | str, layout: Layout) -> str:
    """The reference to run: what was built, or the image that a spec takes as it is.

    Raises:
        ConfigError: the image has to be built first, or there is nothing to start from.

    """
    if not isinstance(image, Image):
        return image
    built = image_receipt(image, layout).get("ref")
    if built:
        return str(built)
    if image.dockerfile or not image.parent_image:
        raise ConfigError(
            f"image `{image.name}` is not built",
            hint=f"a task with `gt.build` of image `{image.name}` makes it",
        )
    return image.parent_image


def image_identity(image: Image | str, layout: Layout) -> dict[str, str]:
    """The image as an input: its name, and a digest of what is in it.

    Without an engine the digest of a tagged image is not known, and empty: asking what is up to
    date needs no engine.
    """
    name = image_name(image)
    receipt = image_receipt(image, layout)
    digest = receipt.get("digest")
    if digest:
        return {"name": name, "digest": str(digest)}
    reference = image.parent_image if isinstance(image, Image) else image
    if "@" in reference:
        return {"name": name, "digest": reference.partition("@")[2]}
    return {"name": name, "digest": _content(reference) if reference else ""}


def _content(reference: str) -> str:
    """Layers and what the image says of its processes: the same in each engine's store."""
    from gputasks.images.engine import Engine

    try:
        found = Engine(timeout_s=QUICK_S).inspect_image(reference)
    except (MachineError, ConfigError):
        return ""
    if found is None:
        return ""
    config = found.get("Config") or {}
    parts = [found["RootFS"].get("Layers"), *(config.get(k) for k in ("Env", "User"))]
    return "sha256:" + hashlib.sha256(json.dumps(parts).encode()).hexdigest()
