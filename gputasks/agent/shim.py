"""Runs a user's unchanged script as one rank: `shim.py SCRIPT ARGS…` or `shim.py -m MODULE ARGS…`.

torch's launcher starts it once per rank.  Around the script it sees to four things:

- everything the rank prints, C++ and child processes included, goes to its own log;
- how it failed is written down, for torch and for us, also by scripts that torch's `@record` does
  not decorate (without it torch only says "To enable traceback see …");
- SIGUSR1 dumps the stacks of all threads into the log, also from a hang inside a collective;
- ranks that trained alone, each with world size 1, are a failure, see `world`.

Standard library only, Python 3.8 or later: it runs in the interpreter of the script, where gputasks
need not be installed.  It imports no torch and costs a few milliseconds.  What it needs lies beside
it in `payload`, whose modules Python keeps compiled.

Files, N being the rank: `rank-N.log`, `rank-N.error.json` (see `failure`) and `rank-N.signal`
(SIGTERM was seen, whatever the script made of it) in $GPUTASKS_LOG_DIR; `rank-N.jsonl` in
$GPUTASKS_EVENTS_DIR, whose path the script finds in $GPUTASKS_EVENTS.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType

PAYLOAD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "payload")

TYPE_CHECKING = False  # importing typing would take as long as the rest
if TYPE_CHECKING:
    from types import TracebackType

    from gputasks.agent.payload.gputasks_worker.rank import Rank
    from gputasks.agent.payload.gputasks_worker.world import WorldCheck
else:
    sys.path.insert(0, PAYLOAD)
    from gputasks_worker.rank import Rank
    from gputasks_worker.world import WorldCheck

    del sys.path[0]


def main() -> None:
    """Run the script of the command line; what it raises is raised, after it was written down."""
    rank = Rank()
    rank.redirect()
    rank.announce()
    rank.watch_signals()
    check = WorldCheck(rank.world_size)
    as_module = sys.argv[1] == "-m"
    del sys.argv[: 2 if as_module else 1]
    try:
        end = None
        try:
            if as_module:
                _run_module(sys.argv[0])
            else:
                _run_script(sys.argv[0])
        except SystemExit as error:
            if error.code not in (None, 0):
                raise
            end = error
        check.verify()
        if end is not None:
            raise end
    except BaseException as error:
        sigterm = rank.note_sigterm()
        if not isinstance(error, SystemExit) or error.code not in (None, 0):
            _tell(error, rank, sigterm=sigterm)
        raise
    rank.note_sigterm()


def _run_script(script: str) -> None:
    """As `python SCRIPT`: the module `__main__` is the script's, and stays so until the very end.

    `runpy.run_path` puts the old `__main__` back while exit handlers and threads still run.
    """
    if os.path.isdir(script) or script.endswith((".zip", ".pyz", ".pyc")):
        import runpy

        runpy.run_path(script, run_name="__main__")
        return
    path = os.path.abspath(script)
    with open(path, "rb") as file:
        source = file.read()
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    main_module = ModuleType("__main__")
    main_module.__file__ = path
    main_module.__loader__ = type(__loader__)("__main__", path)  # type: ignore[name-defined]  # every module has it
    main_module.__dict__.update(__builtins__=__builtins__, __cached__=None)
    code = compile(source, path, "exec", dont_inherit=True)
    sys.modules["__main__"] = main_module
    exec(code, main_module.__dict__)  # noqa: S102  it is what we are for


def _run_module(name: str) -> None:
    """As `python -m NAME`."""
    import runpy

    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.getcwd()
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _tell(error: BaseException, rank: Rank, *, sigterm: bool) -> None:
    """Write the failure down; Python will print its traceback, without our own frames."""
    sys.path.insert(0, PAYLOAD)  # the script may have changed its path
    if TYPE_CHECKING:
        from gputasks.agent.payload.gputasks_worker import failure
    else:
        from gputasks_worker import failure
    sys.path.remove(PAYLOAD)
    failure.Failure(error, rank, _outside(error.__traceback__)).write(sigterm=sigterm)
    hook = sys.excepthook

    def excepthook(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        trace = _outside(trace)
        hook(kind, error.with_traceback(trace), trace)

    sys.excepthook = excepthook


def _outside(trace: TracebackType | None) -> TracebackType | None:
    """The traceback as `python SCRIPT` would print it."""
    mine = (__file__, os.path.abspath(__file__), "<frozen runpy>")
    while trace is not None and trace.tb_frame.f_code.co_filename in mine:
        trace = trace.tb_next
    return trace


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1:] == ["-m"]:
        sys.exit("usage: shim.py SCRIPT [ARGUMENT ...] | -m MODULE [ARGUMENT ...]")
    main()
