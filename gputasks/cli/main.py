"""Sub-commands and their options; each view is imported when it is asked for."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from typing import TYPE_CHECKING

from gputasks.errors import GputasksError
from gputasks.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one sub-command; its exit code."""
    options = _parser().parse_args(argv)
    # `gputasks logs train | head` ends quietly.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        return int(options.view(options))
    except GputasksError as error:
        from gputasks.report.errors import show

        if os.environ.get("GPUTASKS_TRACEBACK"):
            raise
        show(error)
        return error.exit_code
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gputasks", description="Views on what doit tasks made by gputasks did and would do."
    )
    parser.add_argument("--version", action="version", version=f"gputasks {__version__}")
    views = parser.add_subparsers(metavar="COMMAND", required=True)

    why = views.add_parser("why", help="why a task would run, or why not")
    why.add_argument("task", nargs="+", metavar="TASK")
    why.add_argument("--json", action="store_true", help="causes as data")
    why.add_argument("-f", "--file", default="dodo.py", help="the dodo file [dodo.py]")
    why.set_defaults(view=_why)

    plan = views.add_parser("plan", help="what would run, in order, and why; nothing is run")
    plan.add_argument("task", nargs="*", metavar="TASK")
    plan.add_argument("--json", action="store_true", help="as data")
    plan.add_argument("-f", "--file", default="dodo.py", help="the dodo file [dodo.py]")
    plan.set_defaults(view=_plan)

    status = views.add_parser("status", help="the latest run of each task")
    status.add_argument("task", nargs="*", metavar="TASK")
    status.add_argument("--json", action="store_true", help="as data")
    status.set_defaults(view=_status)

    logs = views.add_parser("logs", help="what a run printed; of a failed one, the culprit's log")
    logs.add_argument("task", metavar="TASK")
    logs.add_argument("--run", help="a run id [the latest]")
    logs.add_argument("--attempt", type=int, help="its n-th start, from 0 [the last]")
    logs.add_argument("--rank", type=int, help="a worker [the one that failed first, or 0]")
    logs.add_argument("--output", metavar="PATH", help="write the whole log there")
    logs.add_argument("--path", action="store_true", help="only tell where the log is")
    logs.set_defaults(view=_logs)

    gc = views.add_parser("gc", help="what may be removed, and how much that is")
    gc.add_argument("--yes", action="store_true", help="remove it")
    gc.add_argument("--json", action="store_true", help="as data")
    gc.add_argument("--keep-runs", type=int, default=5, metavar="N",
                    help="newest runs of each task that stay [5]")  # fmt: skip
    gc.add_argument("--older-than", default="7d", metavar="AGE",
                    help="age of what was moved aside before it may go [7d]")  # fmt: skip
    gc.add_argument("--unused-for", default="off", metavar="AGE",
                    help="runs in the cache not used for so long may go [off]")  # fmt: skip
    gc.add_argument("--cache-cap", metavar="SIZE", help="what the cache may keep [its cap]")
    gc.set_defaults(view=_gc)
    freeze = views.add_parser(
        "freeze", help="the exact packages of a task's Python, as a lock file"
    )
    freeze.add_argument("task", metavar="TASK")
    freeze.add_argument("-o", "--output", metavar="FILE", help="write them there [stdout]")
    freeze.add_argument("-f", "--file", default="dodo.py", help="the dodo file [dodo.py]")
    freeze.set_defaults(view=_freeze)

    unlock = views.add_parser("unlock", help="forget the lock of a dead run on another machine")
    unlock.add_argument("task", metavar="TASK")
    unlock.set_defaults(view=_unlock)
    return parser


def _why(options: argparse.Namespace) -> int:
    from gputasks.cli.why import why

    return why(options.task, as_json=options.json, dodo=options.file)


def _plan(options: argparse.Namespace) -> int:
    from gputasks.cli.plan import plan

    return plan(options.task, as_json=options.json, dodo=options.file)


def _status(options: argparse.Namespace) -> int:
    from gputasks.cli.status import status

    return status(options.task, as_json=options.json)


def _logs(options: argparse.Namespace) -> int:
    from gputasks.cli.logs import logs

    return logs(
        options.task,
        run=options.run,
        attempt=options.attempt,
        rank=options.rank,
        output=options.output,
        only_path=options.path,
    )


def _gc(options: argparse.Namespace) -> int:
    from gputasks.cli.gc import gc

    return gc(
        yes=options.yes,
        as_json=options.json,
        keep_runs=options.keep_runs,
        older_than=options.older_than,
        unused_for=options.unused_for,
        cache_cap=options.cache_cap,
    )


def _freeze(options: argparse.Namespace) -> int:
    from gputasks.cli.freeze import freeze

    return freeze(options.task, output=options.output, dodo=options.file)


def _unlock(options: argparse.Namespace) -> int:
    from gputasks.cli.status import unlock

    return unlock(options.task)


if __name__ == "__main__":
    sys.exit(main())
