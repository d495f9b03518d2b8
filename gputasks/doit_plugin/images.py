"""Images for doit: the `uptodate` object and the action, as `verdicts` and `action` for runs."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from doit.action import BaseAction
from doit.dependency import UptodateCalculator
from doit.exceptions import TaskError

from gputasks.doit_plugin import graph
from gputasks.doit_plugin.failures import base_fail
from gputasks.doit_plugin.verdicts import META, RECORD, reasons_of
from gputasks.errors import ConfigError, GputasksError, render
from gputasks.fingerprint import Digests
from gputasks.history import new_run_id
from gputasks.images.verdict import evaluate

if TYPE_CHECKING:
    from doit.exceptions import BaseFail
    from doit.task import Task

    from gputasks.images.verdict import ImageVerdict
    from gputasks.layout import Layout
    from gputasks.specs import Image

IMAGE = "gputasks_image"
"""Key in `task.meta` of the name of the image that a task builds."""


class ImageUpToDate(UptodateCalculator):  # type: ignore[misc]
    """Compares an image's receipt with its inputs and with the engine, each time doit asks."""

    def __init__(self, image: Image, layout: Layout, meta: dict[str, Any]) -> None:
        super().__init__()
        self.image = image
        self.layout = layout
        self.verdict: ImageVerdict | None = None
        self._meta = meta
        self._told = False

    def look(self, recorded: str | None, _options: dict[str, Any] | None = None) -> ImageVerdict:
        """What is the case, for callers that have doit's record at hand.

        Raises:
            GputasksError: the Dockerfile, requirements or context cannot be read.

        """
        digests = Digests.shared(self.layout)
        self.verdict = evaluate(self.image, self.layout, digests, recorded=recorded)
        return self.verdict

    def __call__(self, task: Task, values: dict[str, Any]) -> bool:
        """True when up to date.

        Raises:
            ConfigError: the Dockerfile or the requirements are missing or cannot be used.

        """
        if self.tasks_dict is not None:
            graph.check(self.tasks_dict)
        meta = self._meta
        meta.clear()
        try:
            verdict = self.look(values.get(RECORD))
        except ConfigError:
            raise
        except GputasksError as error:
            meta["refused"] = render(error)
            return False
        if verdict.doubt and verdict.up_to_date and not self._told:
            self._told = True
            print(f"{task.name}: taken as built, {verdict.doubt}", file=sys.stderr)
        run_id = new_run_id(self.layout, task.name)
        meta.update(
            run=run_id,
            run_dir=self.layout.run(task.name, run_id),
            kind="image",
            reasons=verdict.reasons,
            forced=verdict.up_to_date or os.path.exists(self.layout.forgotten(task.name)),
        )
        return verdict.up_to_date

    def __str__(self) -> str:
        """What `doit info` prints after asking: the reasons."""
        if self.verdict is None:
            return "image receipt"
        return "; ".join(self.verdict.reasons) or "up to date"


class BuildAction(BaseAction):  # type: ignore[misc]
    """Builds one image.  Picklable, and free of doit's output capture: logs are files."""

    def __init__(self, image: Image, layout: Layout) -> None:
        self.image = image
        self.layout = layout
        self.task: Task | None = None
        self.out: str | None = None
        self.err: str | None = None
        self.result: Any = None
        self.values: dict[str, Any] = {}

    def execute(self, _out: Any = None, _err: Any = None) -> BaseFail | None:
        """Make the image; None when all went well.

        Raises:
            Interrupted: a signal ended it; doit then ends with its code.

        """
        from gputasks.proc import interrupts
        from gputasks.run.building import BuildJob, build_image

        assert self.task is not None  # noqa: S101  doit sets it before the first action
        found = self.task.meta[META]
        if "refused" in found:
            return TaskError(found["refused"])
        interrupts.install()
        digests = Digests.shared(self.layout)
        job = BuildJob(
            task=self.task.name,
            image=self.image,
            layout=self.layout,
            digests=digests,
            reasons=reasons_of(self.task),
            run_id=found["run"],
            forced=bool(found.get("forced")),
        )
        try:
            receipt = build_image(job)
        except GputasksError as error:
            return base_fail(error)
        finally:
            digests.invalidate()
        self.values = {RECORD: receipt.run}
        self.result = receipt.content
        return None

    def __str__(self) -> str:
        """For `doit list --verbose` and error messages."""
        return f"build image {self.image.name}"


def clean_image(image: Image, layout: Layout, dryrun: bool) -> None:
    """Remove an image's receipt, digest and tags, telling each."""
    from gputasks.images import names
    from gputasks.images import receipt as receipts
    from gputasks.images.engine import Engine, quoted

    found = receipts.read(layout, image.name)
    refs = [] if found is None else [found.ref, names.friendly_tag(image.name)]
    for ref in refs:
        print(f"image {image.name} - removing tag '{ref}'")
        if not dryrun:
            try:
                Engine().request("DELETE", f"/images/{quoted(ref)}")
            except GputasksError as error:
                print(f"image {image.name} - {error.message}")
    for path in (layout.image_receipt(image.name), layout.image_digest(image.name)):
        if os.path.exists(path):
            print(f"image {image.name} - removing file '{path}'")
            if not dryrun:
                os.unlink(path)
