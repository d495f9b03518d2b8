"""Is a task up to date, and if not, for what causes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gputasks import history
from gputasks.fingerprint import diff
from gputasks.frozen import Frozen, spec
from gputasks.receipts.compare import Cause, cause, compare
from gputasks.receipts.inputs import Inputs, take_inputs

if TYPE_CHECKING:
    from gputasks.fingerprint import Digests
    from gputasks.layout import Layout
    from gputasks.receipts.receipt import Receipt
    from gputasks.specs import Run


@spec
class Verdict(Frozen):
    """What was found: no causes means up to date."""

    inputs: Inputs
    causes: tuple[Cause, ...]
    receipt: Receipt | None

    @property
    def up_to_date(self) -> bool:
        """True when nothing asks for a run."""
        return not self.causes

    @property
    def reasons(self) -> list[str]:
        """The causes for people."""
        return [c["text"] for c in self.causes]


def evaluate(
    run: Run,
    task: str,
    layout: Layout,
    digests: Digests,
    *,
    found: Receipt | None,
    recorded: str | None,
) -> Verdict:
    """Compare the receipt of a task with the world.

    Args:
        run: the definition now.
        task: its name.
        layout: where receipts lie.
        digests: digests of files now.
        found: its receipt, None when there is none.
        recorded: the run id in doit's own record, None when doit has none (never run, `doit
            forget`, or a lost database).

    Raises:
        ConfigError: the script is missing or does not parse.
        MachineError: an input cannot be read.

    """
    inputs = take_inputs(run, digests)
    return Verdict(
        inputs, tuple(_causes(run, task, inputs, found, layout, digests, recorded)), found
    )


_ENDS = {
    "failed": "failed",
    "interrupted": "was interrupted",
    "timed_out": "timed out",
    "lost": "was lost",
    "running": "ended without a word",
}


def _no_receipt(last: history.Record | None, recorded: str | None) -> Cause:
    if last is not None and last["outcome"] in _ENDS:
        text = f"its last run {last['run']} {_ENDS[last['outcome']]}"
        return cause("unfinished", "", text, last["run"])
    if recorded is not None:
        return cause("receipt", "", "its receipt is gone", recorded)
    return cause("never", "", "never built here")


def _causes(
    run: Run,
    task: str,
    inputs: Inputs,
    found: Receipt | None,
    layout: Layout,
    digests: Digests,
    recorded: str | None,
) -> list[Cause]:
    if run.kind == "command" and not run.file_dep and not run.artifacts:
        return [cause("always", "", "it has neither file_dep nor artifacts: always runs")]
    if found is None and os.path.exists(layout.forgotten(task)):
        return [cause("forgotten", "", "forgotten by `doit forget`")]
    if found is None:
        return [_no_receipt(history.latest(layout, task), recorded)]
    if recorded is None:
        return [cause("record", "", "doit has no record of it: its receipt is checked")]
    if recorded != found.run:
        text = f"doit recorded run {recorded}, the receipt is of run {found.run}"
        return [cause("record", "", text, recorded, found.run)]
    # Of a nested param the options name `table.key`, the causes only `table`.
    given = {name.partition(".")[0] for name in run.given}
    dropped = {name.partition(".")[0] for name in found.options} - given
    return [
        *compare(found.inputs, inputs, layout, dropped=dropped),
        *_outputs(found, layout, digests),
    ]


def _outputs(found: Receipt, layout: Layout, digests: Digests) -> list[Cause]:
    """Artifacts that are not what they were when the task finished."""
    causes = []
    for name, output in found.outputs.items():
        path, before = output["path"], output["digest"]
        try:
            after = digests.path(path)
        except FileNotFoundError:
            causes.append(cause("output", name, f"{path} is missing", before, None))
            continue
        except OSError as error:
            text = f"{path} cannot be read: {error.strerror}"
            causes.append(cause("output", name, text, before, None))
            continue
        if after != before:
            lines = []
            if before.startswith("tree:") and after.startswith("tree:"):
                lines = diff(before, after, layout=layout, prefix=path)
            what = ", ".join(lines) or f"{path} changed"
            causes.append(cause("output", name, f"{what} since it was built", before, after))
    return causes
