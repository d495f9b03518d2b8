"""The fields of `Image`, and which keys of it have to wait for the builder."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from gputasks.checks import values
from gputasks.checks.faults import Faults
from gputasks.checks.paths import clean_path

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

KEYS = ("parent_image", "dockerfile")

_BUILDING = (
    "apt_packages",
    "build_args",
    "build_context_root",
    "build_options",
    "dockerignore",
    "environment",
    "image_tag",
    "python_package_installer",
    "python_package_installer_args",
    "requirements",
    "runtime_environment",
    "skip_build",
    "user",
)


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


def image_fields(name: Any, extra: Sequence[Any], keys: Mapping[str, Any]) -> dict[str, str]:
    """Values for every field of `Image`.

    Raises:
        ConfigError: every fault of the call.

    """
    faults = Faults("`Image`")
    if extra:
        faults.add(f"`Image` takes one positional argument, the name; got {len(extra)} more")
    fields = checked_image(faults, name, keys)
    faults.finish()
    return fields


def checked_image(faults: Faults, name: Any, keys: Mapping[str, Any]) -> dict[str, str]:
    """The same with a collector of the caller's."""
    fields = {"name": values.text(faults, "name", name, what="a word") or ""}
    fields.update(dict.fromkeys(KEYS, ""))
    for key, value in keys.items():
        if key in _BUILDING:
            faults.add(f"`{key}` of {faults.owner} is not supported yet: building images", key)
        elif key == "parent_image" and value not in (None, ""):
            fields[key] = values.text(faults, key, value) or ""
        elif key == "dockerfile" and value not in (None, ""):
            fields[key] = clean_path(faults, key, value)
    faults.unknown((k for k in keys if k not in _BUILDING), KEYS)
    return fields
