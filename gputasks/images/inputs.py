"""What an image is made of, as data: its digest names the image, its differences are the causes."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from gputasks.checks.images import GENERATED
from gputasks.errors import ConfigError
from gputasks.images import names
from gputasks.images import receipt as receipts
from gputasks.images.context import Context, ignore_lines

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gputasks.fingerprint import Digests
    from gputasks.images.engine import Engine
    from gputasks.layout import Layout
    from gputasks.specs import Image

VERSION = 1
Inputs = dict[str, Any]


class Plan(NamedTuple):
    """An image, looked at: all that a builder needs, and what decides whether it must build.

    Args:
        image: the definition.
        inputs: what it is made of.
        digest: of the inputs, 64 hex digits.
        text: the Dockerfile.
        files: files of ours in the tar.
        context: the user's files; None for none.
        needs: features that the builder must have, by line.
        unknown: parent images that nobody knows here.
        bases: all parent images.

    """

    image: Image
    inputs: Inputs
    digest: str
    text: str
    files: dict[str, bytes]
    context: Context | None
    needs: Mapping[str, int]
    unknown: tuple[str, ...]
    bases: tuple[str, ...]

    @property
    def ref(self) -> str:
        """The content tag."""
        return names.content_tag(self.image.name, self.digest)


def take(
    image: Image,
    layout: Layout,
    digests: Digests,
    *,
    engine: Engine | None,
    last: Inputs | None,
) -> Plan:
    """Look at everything that an image is made of.

    Args:
        image: the definition.
        layout: where receipts and manifests lie.
        digests: what is known of files.
        engine: tells what parent images are; None when it cannot be asked.
        last: inputs of the last build, which tell it then.

    Raises:
        ConfigError: a Dockerfile or a requirement that is missing or cannot be used.
        MachineError: a file of the context cannot be read.

    """
    known = _Bases(engine, layout, (last or {}).get("bases", {}))
    if image.dockerfile:
        return _written(image, layout, digests, known)
    return _described(image, layout, digests, known)


def _written(image: Image, layout: Layout, digests: Digests, known: _Bases) -> Plan:
    from gputasks.images import dockerfile

    text = _read(image)
    found = dockerfile.read(text, image.build_args)
    for base in found.bases:
        if "$" in base.ref:
            raise ConfigError(
                f"`{base.ref}` has no value in `{image.dockerfile}`",
                place=f"{image.dockerfile}:{base.line}",
                hint="`ARG NAME=value` before the first `FROM`, or `build_args=`",
            )
        known.look(base.ref)
    ignore = ignore_lines(image.build_context_root, image.dockerignore, image.dockerfile)
    sources = None if known.triggers else found.sources
    inputs = {
        "version": VERSION,
        "spec": {
            "target": image.target,
            "build_args": dict(image.build_args),
            **_common(image),
        },
        "dockerfile": [image.dockerfile, _sha(text)],
        "requirements": [],
        "bases": known.found,
    }
    context = Context(image.build_context_root, ignore, sources)
    files = _files(image, layout, digests, context, inputs)
    return Plan(image, inputs, digest_of(inputs), text, {}, files, found.needs,
                tuple(known.unknown), tuple(b.ref for b in found.bases))  # fmt: skip


def _described(image: Image, layout: Layout, digests: Digests, known: _Bases) -> Plan:
    from gputasks.images import recipe, requirements

    parent = known.parent(image)
    required = requirements.read(image.requirements)
    spec = {k: _plain(getattr(image, k)) for k in GENERATED if k != "requirements"}
    if not image.requirements:
        spec = {k: v for k, v in spec.items() if not k.startswith(("python_", "index"))}
    inputs = {
        "version": VERSION,
        "spec": {**spec, **_common(image), "skip_build": image.skip_build},
        "dockerfile": ["", f"recipe {recipe.VERSION}"],
        "requirements": [*required.options, *required.packages,
                         *(f"-c {c}" for c in required.constraints)],
        "bases": known.found,
    }  # fmt: skip
    context = None
    if image.copy:
        ignore = ignore_lines(image.build_context_root, image.dockerignore)
        context = _files(
            image,
            layout,
            digests,
            Context(image.build_context_root, ignore, tuple(image.copy)),
            inputs,
        )
    made = recipe.recipe(image, parent, required)
    needs = {"RUN --mount": 0} if image.secrets else {}
    return Plan(image, inputs, digest_of(inputs), made.text, made.files, context, needs,
                tuple(known.unknown), (parent,))  # fmt: skip


def _common(image: Image) -> Inputs:
    return {
        "secrets": sorted(image.secrets),
        "labels": dict(image.labels),
        "platform": image.platform,
    }


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _files(
    image: Image, layout: Layout, digests: Digests, context: Context, inputs: Inputs
) -> Context | None:
    if context.sources.nothing:
        return None
    content = context.content(digests.cache, key=f"image {image.name}", manifests=layout.trees)
    inputs["files"] = [image.build_context_root, content.digest]
    return context


def _read(image: Image) -> str:
    try:
        with open(image.dockerfile, "rb") as file:
            return file.read().decode("utf-8", "replace")
    except OSError as error:
        raise ConfigError(
            f"`{image.dockerfile}` of image `{image.name}` cannot be read: {error.strerror}",
            hint=f'`gt.Image("{image.name}", dockerfile=…)` names a file beside dodo.py',
        ) from None


def _sha(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def digest_of(inputs: Inputs) -> str:
    """64 hex digits for inputs that are equal as data."""
    return _sha(json.dumps(inputs, sort_keys=True, separators=(",", ":")))


class _Bases:
    """Parent images: what they are now, by name."""

    def __init__(
        self, engine: Engine | None, layout: Layout, last: Mapping[str, Sequence[Any]]
    ) -> None:
        self.engine = engine
        self.layout = layout
        self.last = last
        self.found: dict[str, list[Any]] = {}
        self.unknown: list[str] = []
        self.triggers = False

    def parent(self, image: Image) -> str:
        """The name to start from; of another image of ours its content tag."""
        if isinstance(image.parent_image, str):
            self.look(image.parent_image)
            return image.parent_image
        name = image.parent_image.name
        receipt = receipts.read(self.layout, name)
        if receipt is None:
            self.unknown.append(names.repository(name))
            return names.friendly_tag(name)
        self.found[names.repository(name)] = [receipts.content(receipt), False]
        return receipt.ref

    def look(self, ref: str) -> None:
        """Note what an image is: the digest it is pinned by, or its layers and configuration."""
        if digest := names.pinned(ref):
            self.found[ref] = [digest, False]
            return
        inspected = None if self.engine is None else self.engine.inspect_image(ref)
        if inspected is not None:
            on_build = bool((inspected.get("Config") or {}).get("OnBuild"))
            self.found[ref] = [identity(inspected), on_build]
        elif ref in self.last:
            self.found[ref] = list(self.last[ref])
        else:
            self.unknown.append(ref)
            return
        self.triggers = self.triggers or bool(self.found[ref][1])


def identity(inspected: Mapping[str, Any]) -> str:
    """What an image is, whichever engine and store it lies in: ids differ between those."""
    config = inspected.get("Config") or {}
    facts = {
        "layers": (inspected.get("RootFS") or {}).get("Layers") or [],
        **{k: config.get(k) or None for k in ("Env", "Entrypoint", "Cmd", "User", "OnBuild")},
        "WorkingDir": (config.get("WorkingDir") or "/"),
    }
    return f"sha256:{_sha(json.dumps(facts, sort_keys=True))}"
