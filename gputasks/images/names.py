"""References to images: what is pinned, what is not, and the names that our images get."""

from __future__ import annotations

OURS = "gputasks"
FRIENDLY = "latest"
"""The tag that is moved to the newest build; what counts is the content tag."""

LABEL = "io.gputasks.digest"
LABEL_NAME = "io.gputasks.image"


def has_tag(ref: str) -> bool:
    """True for `python:3.12` and `python@sha256:…`; a port is no tag."""
    return "@" in ref or ":" in ref.rpartition("/")[2]


def pinned(ref: str) -> str:
    """The digest in a reference, `sha256:…`, or nothing."""
    return ref.rpartition("@")[2] if "@" in ref else ""


def repository(name: str) -> str:
    """`gputasks/NAME`."""
    return f"{OURS}/{name}"


def content_tag(name: str, digest: str) -> str:
    """`gputasks/NAME:<16 hex digits>`: the image of these inputs and of no others."""
    return f"{repository(name)}:{digest[:16]}"


def friendly_tag(name: str) -> str:
    """`gputasks/NAME:latest`."""
    return f"{repository(name)}:{FRIENDLY}"


def is_among(ref: str, tags: object) -> bool:
    """Whether a name is among an image's own; podman puts a registry before each."""
    return isinstance(tags, list) and any(t == ref or str(t).endswith(f"/{ref}") for t in tags)
