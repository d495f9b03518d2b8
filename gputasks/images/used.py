"""The image that a task uses: under which reference the engine knows it, and what identifies it."""

from __future__ import annotations

import hashlib
import json
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
    return isinstance(image, Image) and not image.skip_build


def edge_of(image: Image | str) -> list[str]:
    """The file that the task which builds the image leaves: its target, our dependency."""
    if not isinstance(image, Image) or not is_built(image):
        return []
    return [Layout().image_digest(image.name)]


def _receipt(image: Image, layout: Layout) -> dict[str, Any]:
    """What `gt.build` left of an image, empty when it has not built it."""
    found = read_json(layout.image_receipt(image.name))
    return found if isinstance(found, dict) else {}


def image_reference(image: Image | str, layout: Layout) -> str:
    """The reference to run: the content tag of what was built, or the image that is taken as it is.

    Raises:
        ConfigError: the image has to be built first.

    """
    if not isinstance(image, Image):
        return image
    if not is_built(image):
        return image_reference(image.parent_image, layout)
    built = _receipt(image, layout).get("ref")
    if not built:
        raise ConfigError(
            f"image `{image.name}` is not built",
            hint=f"a task with `gt.build` of image `{image.name}` makes it",
        )
    return str(built)


def image_identity(image: Image | str, layout: Layout) -> dict[str, str]:
    """The image as an input: its name, and a digest of what is in it.

    Without an engine the digest of a tagged image is not known, and empty: asking what is up to
    date needs no engine.
    """
    name = image_name(image)
    while isinstance(image, Image) and not is_built(image):
        image = image.parent_image
    if isinstance(image, Image):
        return {"name": name, "digest": str(_receipt(image, layout).get("content") or "")}
    if "@" in image:
        return {"name": name, "digest": image.partition("@")[2]}
    return {"name": name, "digest": _content(image)}


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
