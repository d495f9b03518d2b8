"""Runs and the cache: is this one kept there, and keeping it once it is done.

Keeping happens in a thread after the task has been reported done, so that the next one can start.
The process ends when it is through; Ctrl-C then gives it up, and leaves nothing half.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gputasks.cache import Cache, Entry
from gputasks.cache.entries import total_bytes
from gputasks.leases.flock import open_lock, try_lock
from gputasks.proc import Interrupted, interrupts
from gputasks.receipts.inputs import inputs_digest
from gputasks.settings import project
from gputasks.settings.cache import CacheSettings, with_variables

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gputasks.layout import Layout
    from gputasks.receipts import Receipt
    from gputasks.receipts.inputs import Inputs
    from gputasks.specs import Run

SILENT_S = 1.0
"""The end of a process may be held up for so long without a word."""

_POLL_S = 0.05
_BEST = "best_model_path"


def open_cache(layout: Layout) -> Cache:
    """The cache of this project.

    Raises:
        ConfigError: the project file, or a variable, is faulty.

    """
    found = project.find()
    settings = with_variables(found.cache if found else CacheSettings(), os.environ)
    folder = settings.dir or layout.cache
    return Cache(
        os.path.abspath(os.path.join(layout.root, folder)),
        cap=settings.cap,
        floor=settings.free_space,
    )


def kept(run: Run, inputs: Inputs, layout: Layout) -> Entry | None:
    """The run with these very inputs that the cache has, if this task uses it."""
    if not run.cache or not run.artifacts or inputs["missing"]:
        return None
    return open_cache(layout).find(inputs_digest(inputs))


class Keeper:
    """Copies the artifacts of one finished run into the cache.

    Args:
        layout: of the project.
        receipt: of the run.
        facts: what the framework told.

    """

    def __init__(self, layout: Layout, receipt: Receipt, facts: Mapping[str, Any]) -> None:
        self._layout = layout
        self._receipt = receipt
        self._facts = _portable(facts, os.path.abspath(layout.root))
        self._cache = open_cache(layout)
        self._key = inputs_digest(receipt.inputs)
        self._lock = -1
        self._done = False

    def refusal(self) -> str:
        """Why the run is not kept; empty when it is.

        Raises:
            OSError: the state folder cannot be written.

        """
        size = sum(total_bytes(output["path"]) for output in self._receipt.outputs.values())
        return self._cache.refusal(size)

    def start(self) -> None:
        """Begin; from now on nobody may move the artifacts until `wait_for_keeping` has returned.

        Raises:
            OSError: the state folder cannot be written.

        """
        fd = open_lock(self._layout.storing(self._receipt.task))
        if not try_lock(fd):
            os.close(fd)
            return
        self._lock = fd
        threading.Thread(target=self._work, name="keeping").start()
        threading.Thread(target=self._say_if_long, daemon=True).start()

    def _work(self) -> None:
        outputs = self._receipt.outputs
        entry = Entry(
            key=self._key,
            task=self._receipt.task,
            run=self._receipt.run,
            stored=round(time.time(), 3),
            receipt=asdict(self._receipt),
            facts=self._facts,
        )
        try:
            # Whatever is wrong with it, the run is done: the next one tells, by not finding it.
            with contextlib.suppress(OSError):
                self._cache.store(
                    entry,
                    [(name, o["path"], o["digest"]) for name, o in outputs.items()],
                    self._layout,
                    lambda: interrupts.requested is not None,
                )
        finally:
            self._done = True
            os.close(self._lock)

    def _say_if_long(self) -> None:
        threading.main_thread().join()
        time.sleep(SILENT_S)
        if not self._done:
            sys.stderr.write(
                f"keeping the artifacts of `{self._receipt.task}` in the cache; Ctrl-C skips it\n"
            )


def wait_for_keeping(layout: Layout, task: str) -> None:
    """Wait until another process has copied the artifacts that are about to be moved.

    Raises:
        Interrupted: a signal came meanwhile.

    """
    path = layout.storing(task)
    if not os.path.exists(path):
        return
    fd = open_lock(path)
    try:
        while not try_lock(fd):
            if interrupts.requested is not None:
                raise Interrupted(interrupts.requested)
            time.sleep(_POLL_S)
    finally:
        os.close(fd)


def _portable(facts: Mapping[str, Any], root: str) -> dict[str, Any]:
    """Paths below the project relative to it: another checkout lies elsewhere."""
    best = facts.get(_BEST)
    if isinstance(best, str) and best.startswith(root + os.sep):
        return {**facts, _BEST: os.path.relpath(best, root)}
    return dict(facts)


def safe_to_lose(
    run: Run, previous: Receipt | None, layout: Layout, digest: Callable[[str], str]
) -> bool:
    """What stands at the artifacts' paths is what a finished run left, and is in the cache.

    With `cache=False` the user has said that there need be no second copy.
    """
    if previous is None or not unchanged(previous, digest):
        return False
    if {o["path"] for o in previous.outputs.values()} != {a.path for a in run.artifacts}:
        return False
    return not run.cache or open_cache(layout).find(inputs_digest(previous.inputs)) is not None


def unchanged(receipt: Receipt, digest: Callable[[str], str]) -> bool:
    """The artifacts are still what the run left."""
    try:
        return all(digest(o["path"]) == o["digest"] for o in receipt.outputs.values())
    except OSError:
        return False
