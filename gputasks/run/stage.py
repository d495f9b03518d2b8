"""What stands at the declared paths: before a run, between its attempts, and after it."""

from __future__ import annotations

import contextlib
import glob
import os
import time
from typing import TYPE_CHECKING, Any

from gputasks import history
from gputasks.artifacts import aside, outputs
from gputasks.errors import RunFailedError
from gputasks.layout import write_json
from gputasks.proc import sweep_mark
from gputasks.receipts import receipt as receipts
from gputasks.receipts.inputs import VERSION, resume_digest
from gputasks.run import messages
from gputasks.run.keeping import safe_to_lose, unchanged, wait_for_keeping
from gputasks.run.retries import back_off
from gputasks.specs import Artifact

if TYPE_CHECKING:
    from collections.abc import Callable

    from gputasks.artifacts.outputs import State
    from gputasks.fingerprint import Digests
    from gputasks.layout import Layout
    from gputasks.run.record import RunRecord
    from gputasks.specs import Run


WAIT_S = 5.0
WAIT_VARIABLE = "GPUTASKS_ARTIFACT_WAIT_S"


class Stage:
    """The artifacts of one run, on their way from nothing, or from a checkpoint, to a receipt."""

    def __init__(
        self,
        task: str,
        run: Run,
        layout: Layout,
        record: RunRecord,
        digests: Digests,
        note: Callable[..., None],
    ) -> None:
        self._digests = digests
        self._task = task
        self._run = run
        self._layout = layout
        self._record = record
        self._note = note
        self._before: State = {}

    def check(self) -> None:
        """All paths can be written.

        Raises:
            MachineError: naming those that cannot.

        """
        aside.check_writable(self._run.artifacts)

    def prepare(self, previous: dict[str, Any] | None, *, forced: bool) -> str | None:
        """Put an interrupted run's files back, or clear the way.

        Args:
            previous: record of the run before, whose lock is free: it has ended.
            forced: the user wants it made anew.

        Returns:
            Absolute path of the checkpoint to resume from, None for a fresh start.

        Raises:
            MachineError: something cannot be moved.

        """
        if previous is not None and previous["outcome"] == "running":
            self._mark_lost(previous)
        if self._run.resume and not forced:
            path = self._continued(previous) or self._prolonged()
            if path is not None:
                return os.path.abspath(path)
        self.clear_the_way()
        return None

    def _begin(self) -> None:
        """From now on what stands at the declared paths is this run's; before, it is not touched.

        The record says so, on disk: nobody may resume from what an earlier run left there.
        """
        self._record.data["began"] = True
        self._record.save()

    def _continued(self, previous: dict[str, Any] | None) -> str | None:
        """The newest checkpoint of a run with these inputs that did not get to its end."""
        if (
            previous is None
            or previous["outcome"] == "succeeded"
            or not previous.get("began")
            or previous.get("resume_digest") != self._record.data["resume_digest"]
        ):
            return None
        folder = self._layout.run(self._task, previous["run"])
        self._begin()
        aside.put_back(self._run.artifacts, os.path.join(folder, "partial"))
        return self._resume(previous["run"], ended=history.last_sign_of_life(folder))

    def _prolonged(self) -> str | None:
        """The newest checkpoint of the finished run, when only `resume_params` have changed."""
        receipt = receipts.read_previous(self._record.folder)
        names = self._run.resume_params
        if (
            receipt is None
            or not names
            or receipt.inputs["version"] != VERSION
            or resume_digest(receipt.inputs, names) != self._record.data["resume_digest"]
            or not unchanged(receipt, self._digests.path)
        ):
            return None
        wait_for_keeping(self._layout, self._task)
        if not safe_to_lose(self._run, receipt, self._layout, self._digests.path):
            copy = self._layout.trash(self._task, self._record.run_id)
            places = ", ".join(f"`{p}`" for p in aside.copy_aside(self._run.artifacts, copy))
            self._note(f"a copy of what run {receipt.run} left is at {places}")
        self._begin()
        return self._resume(receipt.run, ended=time.time())

    def _resume(self, run_id: str, *, ended: float) -> str | None:
        path = self._newest(ended=ended)
        if path is not None:
            self._note(f"resuming from `{path}` of run {run_id}", level="info")
            before = history.load(self._layout, self._task, run_id) or {}
            self._record.data["resumed_from"] = {"run": run_id, "checkpoint": path}
            self._record.data["chain"] = [*before.get("chain", []), run_id]
        return path

    def _mark_lost(self, previous: dict[str, Any]) -> None:
        previous["outcome"] = "lost"
        folder = self._layout.run(self._task, previous["run"])
        write_json(os.path.join(folder, "run.json"), previous)
        self._note(f"run {previous['run']} ended without a word: its driver died")
        # Its guard has swept by now, unless somebody killed that too.
        attempts = glob.glob(os.path.join(glob.escape(os.path.abspath(folder)), "attempt-*"))
        left = sum(sweep_mark(attempt) for attempt in attempts)
        if left:
            self._note(
                f"{left} processes of run {previous['run']} were still alive, and were ended"
            )

    def clear_the_way(self) -> None:
        """Move what stands at the declared paths into the trash.

        Raises:
            MachineError: something cannot be moved.

        """
        wait_for_keeping(self._layout, self._task)
        previous = receipts.read_previous(self._record.folder)
        replaced = safe_to_lose(self._run, previous, self._layout, self._digests.path)
        self._begin()
        trash = self._layout.trash(self._task, self._record.run_id)
        places = aside.set_aside(self._run.artifacts, trash)
        self._record.data.update(set_aside=places, replaced=replaced)
        if places and not replaced:
            shown = ", ".join(f"`{p}`" for p in places)
            self._note(f"what stood at the artifacts' paths is now at {shown}")

    def _newest(self, *, ended: float) -> str | None:
        path, passed = outputs.newest_checkpoint((a.path for a in self._run.artifacts), ended=ended)
        for broken, why in passed.items():
            self._note(f"`{broken}` is {why}; passed over")
            # Left in place it would spoil the finished artifact.
            folder = os.path.join(self._record.folder, "broken")
            aside.set_aside([Artifact(broken, broken)], folder)
        return path

    def between(self, attempt_folder: str) -> str | None:
        """After a failed attempt: the checkpoint for the next one, absolute, or a cleared way."""
        path = self._newest(ended=time.time()) if self._run.resume else None
        if path is None:
            aside.set_aside(self._run.artifacts, os.path.join(attempt_folder, "partial"))
            return None
        return os.path.abspath(path)

    def look(self) -> None:
        """Remember what is there just before a start, to tell later what is new."""
        self._before = outputs.state_of(self._run.artifacts)

    def verify(self) -> None:
        """Every artifact is there, new, whole and on disk.

        Raises:
            RunFailedError: naming what is not.
            OSError: the disk could not take what was written.

        """
        self._wait_for_late()
        said = outputs.faults(self._run.artifacts, self._before, started=self._record.started)
        if said:
            log = messages.log_of(self._record.folder, self._run, os.getcwd())
            raise RunFailedError(
                f"`{self._task}` ended with code 0, but {said[0]}",
                facts=[*said[1:], f"log: {log}"],
                hint=f"`gputasks logs {self._task}` shows what it printed",
            )
        outputs.sync_to_disk(self._run.artifacts)

    def _wait_for_late(self) -> None:
        """A network file system may show what another machine wrote only after some seconds.

        Raises:
            Interrupted: a signal came meanwhile.

        """
        limit = float(os.environ.get(WAIT_VARIABLE) or WAIT_S)
        until, said = time.monotonic() + limit, False
        while missing := [a.path for a in self._run.artifacts if not os.path.lexists(a.path)]:
            if time.monotonic() >= until:
                return
            if not said:
                said = True
                names = ", ".join(f"`{p}`" for p in missing)
                self._note(f"{names} is not there; waiting up to {limit:g} s for it", level="info")
            back_off(0.1)

    def clear(self) -> list[str]:
        """Take partial artifacts away from their paths; where they went.

        Raises:
            MachineError: something cannot be moved.

        """
        if not self._record.data.get("began"):
            receipts.reinstate(self._layout, self._task, self._record.folder)
            return []
        return aside.set_aside(self._run.artifacts, os.path.join(self._record.folder, "partial"))

    def empty_trash(self) -> None:
        """Remove older outputs of this task that this one replaces, and that nobody could miss."""
        folder = os.path.dirname(self._layout.trash(self._task, "x"))
        with contextlib.suppress(OSError):
            for run_id in os.listdir(folder):
                record = history.load(self._layout, self._task, run_id)
                if record is not None and record.get("replaced"):
                    aside.remove(os.path.join(folder, run_id))
