"""`run.json`: what a run was, written whole at every change: a crash leaves the last truth."""

from __future__ import annotations

import os
import platform
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from gputasks import history
from gputasks.layout import write_json
from gputasks.leases.flock import boot_id
from gputasks.receipts.inputs import inputs_digest, resume_digest
from gputasks.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable

    from gputasks.layout import Layout
    from gputasks.receipts.inputs import Inputs
    from gputasks.specs import Image, Placement, Run


OURS = ("task", "run", "kind", "outcome", "inputs_digest", "resume_digest")


class RunRecord:
    """The record of one run.  Times are UTC, durations come from a monotonic clock."""

    def __init__(self, layout: Layout, task: str, run_id: str) -> None:
        self.folder = os.path.abspath(layout.run(task, run_id))
        self._layout = layout
        self._task = task
        self.run_id = run_id
        self._began = time.monotonic()
        self.started = time.time()
        self.data: dict[str, Any] = {}
        self.hide: Callable[[Any], Any] | None = None
        """What takes secrets out of the record."""

    def open(
        self, run: Run, inputs: Inputs, reasons: list[str], git: dict[str, Any] | None
    ) -> None:
        """Write the first version; from now on the run is the task's latest.

        Raises:
            OSError: no space or no permission.

        """
        # A note that the run waited for its lock may be there already.
        os.makedirs(self.folder, exist_ok=True)
        self.data = {
            "version": 1,
            "task": self._task,
            "run": self.run_id,
            "kind": run.kind,
            "outcome": "running",
            "started": _utc(self.started),
            "reasons": reasons,
            "inputs_digest": inputs_digest(inputs),
            "resume_digest": resume_digest(inputs, run.resume_params),
            "params": dict(run.params),
            "script": run.script,
            "argv": list(run.argv),
            "python": inputs["python"],
            "packages": inputs["packages"],
            "git": git,
            "driver": _driver(),
            "attempts": [],
        }
        self.save()
        history.point_latest(self._layout, self._task, self.run_id)

    def open_build(self, image: Image, reasons: list[str]) -> None:
        """Write the first version of the record of an image's build.

        Raises:
            OSError: no space or no permission.

        """
        os.makedirs(self.folder, exist_ok=True)
        self.data = {
            "version": 1,
            "task": self._task,
            "run": self.run_id,
            "kind": "image",
            "outcome": "running",
            "started": _utc(self.started),
            "reasons": reasons,
            "name": image.name,
            "driver": _driver(),
            "attempts": [],
        }
        self.save()
        history.point_latest(self._layout, self._task, self.run_id)

    def save(self) -> None:
        """Write the record as it is now.

        Raises:
            OSError: no space or no permission.

        """
        data = self.data
        if self.hide is not None:
            # Our own words stay, whatever somebody has for a password.
            data = {**self.hide(data), **{k: v for k, v in data.items() if k in OURS}}
        write_json(os.path.join(self.folder, "run.json"), data)

    def place(self, placement: Placement, backend: str) -> None:
        """Note where the workers are."""
        self.data["world_size"] = placement.world_size
        self.data["backend"] = backend
        self.data["placement"] = [
            {
                "node": n.node.name,
                "nproc": n.nproc,
                "gpus": [{"id": g.visible_as, "uuid": g.uuid, "name": g.name} for g in n.gpus],
            }
            for n in placement.nodes
        ]

    @property
    def duration_s(self) -> float:
        """Seconds since the record was made."""
        return round(time.monotonic() - self._began, 3)

    def close(self, outcome: str, **facts: Any) -> None:
        """Note how it ended.

        Raises:
            OSError: no space or no permission.

        """
        self.data.update(
            outcome=outcome, ended=_utc(time.time()), duration_s=self.duration_s, **facts
        )
        self.save()


def _driver() -> dict[str, Any]:
    return {
        "pid": os.getpid(),
        "host": platform.node(),
        "boot": boot_id(),
        "gputasks": __version__,
    }


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")
