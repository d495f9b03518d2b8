"""The image that a task uses: under which reference the engine knows it, and what identifies it."""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any

from gputasks.errors import ConfigError, MachineError
from gputasks.layout import Layout, read_json
from gputasks.specs import Image

QUICK_S = 2.0
"""How long `doit list` waits for an engine that may hang."""


def image_name(image: Image | str) -> str:
    """As people call it."""
    return image.name if isinstance(image, Image) else image


def is_built(image: Image | str | None) -> bool:
    """True when a task with `gt.build` makes it, and false when it is taken as it is."""
    return isinstance(image, Image) and bool(image.dockerfile)


def edge_of(image: Image | str) -> list[str]:
    """The file that the task which builds the image leaves: its target, our dependency."""
    if not is_built(image):
        return []
    return [os.path.join(Layout().state, "images", f"{image_name(image)}.digest")]


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
    if is_built(image) or not image.parent_image:
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
    content = receipt.get("content") or receipt.get("digest")
    if content:
        return {"name": name, "digest": str(content)}
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
