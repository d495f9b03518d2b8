"""Is an image up to date, and if not, for what causes.

Our digest decides, then one question to the engine: is the image of that digest there, and does its
friendly tag still name it.  An engine that does not answer cannot contradict the receipt.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from gputasks.fingerprint import diff
from gputasks.frozen import Frozen, spec
from gputasks.images import inputs as taking
from gputasks.images import names
from gputasks.images import receipt as receipts
from gputasks.images.engine import Engine, EngineDownError
from gputasks.receipts.compare import Cause, cause

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gputasks.fingerprint import Digests
    from gputasks.images.inputs import Inputs, Plan
    from gputasks.images.receipt import ImageReceipt
    from gputasks.layout import Layout
    from gputasks.specs import Image

ANSWER_S = 5.0
"""A no-op does not wait longer for an engine."""


@spec
class ImageVerdict(Frozen):
    """What was found: no causes means up to date; `doubt` is why the engine was not asked."""

    plan: Plan
    causes: tuple[Cause, ...]
    receipt: ImageReceipt | None
    doubt: str = ""

    @property
    def up_to_date(self) -> bool:
        """True when nothing asks for a build."""
        return not self.causes

    @property
    def reasons(self) -> list[str]:
        """The causes for people."""
        return [c["text"] for c in self.causes]


def evaluate(
    image: Image, layout: Layout, digests: Digests, *, recorded: str | None
) -> ImageVerdict:
    """Compare an image's receipt with its inputs and with what the engine has.

    Args:
        image: the definition now.
        layout: where receipts lie.
        digests: digests of files now.
        recorded: the run id in doit's own record, None when doit has none.

    Raises:
        ConfigError: the Dockerfile or requirements are missing or cannot be used.
        MachineError: a file cannot be read.

    """
    found = receipts.read(layout, image.name)
    engine: Engine | None = Engine(timeout_s=ANSWER_S)
    doubt, present = "", None
    try:
        if found is not None and engine is not None:
            present = engine.inspect_image(found.ref)
    except EngineDownError as error:
        engine, doubt = None, error.message
    last = dict(found.inputs) if found is not None else None
    try:
        plan = taking.take(image, layout, digests, engine=engine, last=last)
    except EngineDownError as error:
        engine, doubt = None, error.message
        plan = taking.take(image, layout, digests, engine=None, last=last)
    causes = list(_causes(plan, layout, found, recorded))
    if not causes and found is not None and engine is not None:
        causes = list(_absence(found, present, engine, prebuilt=image.skip_build))
    return ImageVerdict(plan, tuple(causes), found, doubt)


def _causes(
    plan: Plan, layout: Layout, found: ImageReceipt | None, recorded: str | None
) -> Iterator[Cause]:
    if found is None:
        yield (
            cause("receipt", "", "its receipt is gone", recorded)
            if recorded is not None
            else cause("never", "", "never built here")
        )
        return
    if recorded is None:
        yield cause("record", "", "doit has no record of it")
        return
    if recorded != found.run:
        text = f"doit recorded run {recorded}, the receipt is of run {found.run}"
        yield cause("record", "", text, recorded, found.run)
    if plan.digest != found.digest:
        causes = list(compare(dict(found.inputs), plan.inputs, layout))
        yield from causes or [cause("version", "", "it is made in another way now")]


def _absence(
    found: ImageReceipt, present: Mapping[str, Any] | None, engine: Engine, *, prebuilt: bool
) -> Iterator[Cause]:
    """What the engine has, when the inputs are as they were."""
    labels = ((present or {}).get("Config") or {}).get("Labels") or {}
    if present is None:
        where = f" on `{engine.host}`" if engine.host != found.engine else ""
        yield cause("missing", found.ref, f"image missing{where}: {found.ref}", found.ref, None)
    elif not prebuilt and labels.get(names.LABEL) != found.digest:
        yield cause("missing", found.ref, f"image missing: {found.ref} is another one now")
    else:
        friendly = names.friendly_tag(found.image)
        if not names.is_among(friendly, present.get("RepoTags")):
            yield cause("tag", friendly, f"tag {friendly} moved or lost", found.ref, None)


def compare(old: Inputs, new: Inputs, layout: Layout) -> Iterator[Cause]:
    """Every difference between what an image was and is to be made of."""
    before, after = old.get("dockerfile", ["", ""]), new["dockerfile"]
    if before != after:
        name = after[0] or before[0] or "recipe"
        text = f"{name} changed"
        if before[0] and after[0] and before[0] != after[0]:
            text = f"dockerfile: {before[0]} -> {after[0]}"
        yield cause("dockerfile", name, text, *before[1:], *after[1:])
    for ref in sorted({*old.get("bases", {}), *new["bases"]}):
        was, now = old.get("bases", {}).get(ref), new["bases"].get(ref)
        if was is None:
            yield cause("base", ref, f"parent image {ref} added", None, now)
        elif now is None:
            yield cause("base", ref, f"parent image {ref} removed", was, None)
        elif was[0] != now[0]:
            yield cause("base", ref, f"parent image {ref} changed", was[0], now[0])
    yield from _list("requirements", old.get("requirements", []), new["requirements"])
    specs = old.get("spec", {}), new["spec"]
    for key in sorted({*specs[0], *specs[1]}):
        yield from _key(key, specs[0].get(key), specs[1].get(key))
    yield from _files(old.get("files"), new.get("files"), layout)


def _files(old: list[str] | None, new: list[str] | None, layout: Layout) -> Iterator[Cause]:
    if old == new:
        return
    if old is None or new is None or old[0] != new[0]:
        was, now = (old[0] if old else None), (new[0] if new else None)
        text = f"build context: {_shown(was)} -> {_shown(now)}"
        yield cause("files", "", text, old, new)
        return
    root = "" if new[0] == "." else new[0]
    lines = diff(old[1], new[1], layout=layout, prefix=root)
    yield cause("files", new[0], ", ".join(lines) or "files of the context changed", old[1], new[1])


def _key(key: str, old: Any, new: Any) -> Iterator[Cause]:
    if json.dumps(old, sort_keys=True) == json.dumps(new, sort_keys=True):
        return
    if isinstance(old, dict) and isinstance(new, dict) and old != new:
        for name in sorted({*old, *new}):
            if old.get(name) != new.get(name) or (name in old) != (name in new):
                text = f"{key} {name}: {_shown(old.get(name))} -> {_shown(new.get(name))}"
                yield cause(key, name, text, old.get(name), new.get(name))
    elif isinstance(old, list) and isinstance(new, list) and key != "run":
        yield from _list(key, old, new)
    else:
        yield cause(key, key, f"{key}: {_shown(old)} -> {_shown(new)}", old, new)


def _list(key: str, old: list[str], new: list[str]) -> Iterator[Cause]:
    gone = [f"-{item}" for item in old if item not in new]
    come = [f"+{item}" for item in new if item not in old]
    if gone or come:
        text = f"{key}: {_shown(' '.join([*gone, *come]), bare=True)}"
        yield cause(key, key, text, old, new)
    elif old != new:
        yield cause(key, key, f"{key} in another order", old, new)


def _shown(value: Any, *, bare: bool = False) -> str:
    text = value if bare else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."
