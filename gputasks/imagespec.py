"""What an image is to be made of, checked and frozen; a name of `gputasks.specs`."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal

from gputasks.frozen import Frozen, spec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike


@spec
class Image(Frozen):
    """A container image: from a Dockerfile, or from a list of what is to be in it.

    Args:
        name: how tasks refer to it; the image is `gputasks/NAME`.
        parent_image: what it starts from, with a tag or a digest, or another `gt.Image`.
        dockerfile: a Dockerfile; then only context, `target`, `build_args`, `secrets`, `labels`,
            `platform`, `network` and `cache` apply.
        target: the stage of the Dockerfile to build.
        build_context_root: folder of the files that the image may take; the folder of dodo.py.
        dockerignore: an ignore file, or its lines; by default `.dockerignore` of that folder.
        apt_packages: Debian or Ubuntu packages.
        requirements: Python packages, a list or a requirements file.
        python_package_installer: `"uv"` or `"pip"`.
        python_package_installer_args: its options, `{"system": None}` is `--system`.
        index_urls: package indexes, the first in place of PyPI, without passwords.
        environment: variables inside, verbatim, not for secrets.
        run: commands for `/bin/sh`, after the packages.
        copy: files of the context and where they go, `{"src": "/app/src"}`, the last layer.
        user: who runs inside.
        workdir: working folder inside.
        build_args: values for `ARG`; they can be read in the image's history.
        secrets: files (`"~/pip.conf"`) or variables (`"env:TOKEN"`) that `RUN` sees under
            `/run/secrets/ID` and no layer keeps; needs buildx.
        labels: labels of the image.
        platform: `"linux/arm64"`.
        network: network of the build, e.g. `"host"`.
        cache: False builds every layer anew.
        skip_build: use `parent_image` as it is.
        push: registry and repository to push to.
        verify: `"auto"` looks which Python, torch and CUDA are inside, `"none"` does not,
            `"cuda"` fails when torch in it has no CUDA, `"13.0"` when it has another one.
        allow_secret_names: names of variables that look like secrets and are none.
        extra: refused.
        unknown: refused, with the nearest valid key.

    Raises:
        ConfigError: every fault of the call at once.

    """

    name: str
    parent_image: str | Image = ""
    dockerfile: str = ""
    target: str = ""
    build_context_root: str = "."
    dockerignore: str | tuple[str, ...] = ""
    apt_packages: tuple[str, ...] = ()
    requirements: str | tuple[str, ...] = ()
    python_package_installer: Literal["uv", "pip"] = "uv"
    python_package_installer_args: Mapping[str, str | None] = field(default_factory=dict)
    index_urls: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    run: tuple[str, ...] = ()
    copy: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    workdir: str = ""
    build_args: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    platform: str = ""
    network: str = ""
    cache: bool = True
    skip_build: bool = False
    push: str = ""
    verify: str = "auto"
    allow_secret_names: tuple[str, ...] = ()

    def __init__(
        self,
        name: str = "",
        *extra: Any,
        parent_image: str | Image | None = None,
        dockerfile: str | PathLike[str] | None = None,
        target: str | None = None,
        build_context_root: str | PathLike[str] | None = None,
        dockerignore: str | PathLike[str] | Sequence[str] | None = None,
        apt_packages: Sequence[str] | None = None,
        requirements: str | PathLike[str] | Sequence[str] | None = None,
        python_package_installer: Literal["uv", "pip"] | None = None,
        python_package_installer_args: Mapping[str, Any] | None = None,
        index_urls: Sequence[str] | None = None,
        environment: Mapping[str, str] | None = None,
        run: Sequence[str] | None = None,
        copy: Mapping[str, str] | Sequence[str] | None = None,
        user: str | None = None,
        workdir: str | None = None,
        build_args: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        platform: str | None = None,
        network: str | None = None,
        cache: bool | None = None,
        skip_build: bool | None = None,
        push: str | None = None,
        verify: str | None = None,
        allow_secret_names: Sequence[str] | None = None,
        **unknown: Any,
    ) -> None:
        given = {k: v for k, v in locals().items() if k not in _NO_KEYS and v is not None}
        from gputasks.checks.images import image_fields

        for key, value in image_fields(name, extra, {**given, **unknown}).items():
            object.__setattr__(self, key, value)

    def with_options(self, **changes: Any) -> Image:
        """A copy with some keys changed; another name makes it another image.

        Raises:
            ConfigError: every fault of the result at once.

        """
        given = {k: v for k, v in vars(self).items() if k not in changes}
        if "python_package_installer" in changes:
            given.pop("python_package_installer_args", None)
        return Image(**given, **changes)

    def __hash__(self) -> int:
        return hash(self.name)


_NO_KEYS = ("self", "name", "extra", "unknown", "__class__")
