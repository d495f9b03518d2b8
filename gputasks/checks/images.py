"""The fields of `Image`, and which keys of it have to wait for the builder."""

from __future__ import annotations

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
