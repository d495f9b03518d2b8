"""The reporter for doit: chooses the face, follows the events of running tasks.

doit calls it in the main process; under `-n` also from worker threads, and workers that it forked
hold a copy that must stay silent.  A running action tells what it does through the event file of
its run, in every mode alike.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from gputasks.events import Follower
from gputasks.report.faces import JsonFace, PlainFace
from gputasks.report.live import LiveFace
from gputasks.report.stream import Stream
from gputasks.report.view import TaskView

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from doit.exceptions import BaseFail
    from doit.task import Task

    from gputasks.report.faces import Face

TICK_S = 0.15


class Reporter:
    """Shows what happens; see `faces` for how."""

    desc = "live block, plain lines or JSON lines"

    def __init__(self, outstream: Any, options: Mapping[str, Any]) -> None:
        self._owner = os.getpid()
        self._out = outstream
        self._verbosity = options.get("failure_verbosity", 0)
        errors = Stream(sys.stderr)
        self.face: Face
        if os.environ.get("GPUTASKS_OUTPUT") == "json":
            self.face = JsonFace(Stream(sys.stdout))
        elif errors.live:
            self.face = LiveFace(errors)
        else:
            self.face = PlainFace(errors)
        self._running: dict[str, tuple[TaskView, Follower | None]] = {}
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._ending = threading.Event()
        self._stopped = False
        self._failed = False
        self._plain = False
        self._others: list[Any] = []
        self._workers: list[Any] = []

    @property
    def _mine(self) -> bool:
        return self._owner == os.getpid()

    def initialize(self, tasks: Mapping[str, Task], selected: list[str]) -> None:
        """Before the first task; no thread and no display yet: doit may be about to fork."""
        from gputasks.proc import interrupts

        interrupts.install()
        self._plain = _any_plain(tasks, selected)
        self._others = _children()

    def get_status(self, task: Task) -> None:
        """A task is about to be looked at."""

    def execute_task(self, task: Task) -> None:
        """A task starts."""
        if not self._mine or not task.actions:
            return
        from doit.action import PythonAction

        meta = _meta(task)
        with self._lock:
            view = TaskView(task.name)
            folder = meta.get("run_dir")
            follower = Follower(os.path.join(folder, "events.jsonl")) if folder else None
            if not meta:
                # doit gives a task of `io: {"capture": False}` the terminal itself; a program that
                # Python code starts has it as well.
                view.owns_terminal = not task.io.capture
                view.may_print = any(isinstance(a, PythonAction) for a in task.actions)
            self._running[task.name] = (view, follower)
            if self._thread is None:
                # Those of `doit -n N -P process`; a dodo.py may have others.
                self._workers = [c for c in _children() if c not in self._others]
            if self._thread is None and self._plain and self._workers:
                # Plain tasks in doit's worker processes print past any block, and through it.
                self.face = self.face.without_block()
            if view.owns_terminal:
                self.face.tick([v for v, _ in self._running.values()])
            self.face.started(view, meta.get("reasons") or [])
            if self._thread is None:
                atexit.register(self._stop)
                self._thread = threading.Thread(target=self._follow, daemon=True)
                self._thread.start()

    def add_success(self, task: Task) -> None:
        """A task has ended well."""
        if self._mine and task.actions:
            self._end(task, None)

    def add_failure(self, task: Task, fail: BaseFail) -> None:
        """A task has failed, or could not be started."""
        if not self._mine or not fail.report:
            return
        self._failed = True
        self._end(task, fail.get_msg().strip(), kind=fail.get_name())

    def skip_uptodate(self, task: Task) -> None:
        """Nothing to do."""
        if self._mine and task.actions and not task.name.startswith("_"):
            self.face.skipped(task.name, "up to date")

    def skip_ignore(self, task: Task) -> None:
        """The user wants it ignored."""
        if self._mine:
            self.face.skipped(task.name, "ignored")

    def teardown_task(self, task: Task) -> None:
        """Nothing to show."""

    def cleanup_error(self, exception: BaseFail) -> None:
        """A teardown failed."""
        self.face.problem(exception.get_msg().strip())

    def runtime_error(self, msg: str) -> None:
        """doit itself has something to say."""
        self._failed = True
        self.face.problem(msg)

    def complete_run(self) -> None:
        """All is over, in whatever way.

        After Ctrl-C under `-n` runs are still ending, in daemon threads or forked workers: the end
        of the process waits for them, and only then tells how they ended.
        """
        if self._mine and not (self._running and self._thread is not None):
            self._stop()

    # -- following -----------------------------------------------------------------------------

    def _follow(self) -> None:
        while not self._ending.wait(TICK_S):
            with self._lock:
                self._look()
                self.face.tick([v for v, _ in self._running.values()])

    def _look(self) -> None:
        for view, follower in self._running.values():
            if follower is not None:
                self._read(view, follower)

    def _read(self, view: TaskView, follower: Follower) -> None:
        for event in follower.events():
            # What a worker's file says may be anything; that is no reason to fail a run.
            with contextlib.suppress(
                ArithmeticError, AttributeError, LookupError, TypeError, ValueError
            ):
                view.apply(event)
                self.face.event(view, event)

    def _end(self, task: Task, failure: str | None, *, kind: str = "") -> None:
        with self._lock:
            view, follower = self._running.pop(task.name, (TaskView(task.name), None))
            if follower is not None:
                self._read(view, follower)
            self.face.tick([v for v, _ in self._running.values()])
            ours = bool(_meta(task))
            output = "" if ours or failure is None else _captured(task)
            if failure is not None and not ours and not failure.startswith("error: "):
                failure = f"error: `{task.name}` failed: {kind}\n{failure}"
            self.face.ended(view, failure, output, time.time())

    def _stop(self) -> None:
        if not self._mine or self._stopped:
            return
        self._stopped = True
        while self._running and any(worker.is_alive() for worker in self._workers):
            # multiprocessing would wait for them next, but nobody would hear what they say.
            time.sleep(TICK_S)
        self._ending.set()
        if self._thread is not None:
            self._thread.join(2)
        with self._lock:
            self._look()
            for view, _ in self._running.values():
                self.face.cut_off(view, time.time())
            self.face.close()
            self.face.done(failed=self._failed or bool(self._running))


def _meta(task: Task) -> dict[str, Any]:
    return ((task.meta or {}).get("gputasks")) or {}


def _any_plain(tasks: Mapping[str, Task], selected: Iterable[str]) -> bool:
    """Whether tasks that are not ours may run."""
    todo, seen = list(selected), set()
    while todo:
        name = todo.pop()
        if name in seen or name not in tasks:
            continue
        seen.add(name)
        task = tasks[name]
        if task.actions and not (task.meta or {}).keys() & {"gputasks"}:
            return True
        todo += [*task.task_dep, *task.setup_tasks]
    return False


def _children() -> list[Any]:
    """Processes that were forked by multiprocessing, which nobody need have imported."""
    multiprocessing = sys.modules.get("multiprocessing")
    return [] if multiprocessing is None else multiprocessing.active_children()


def _captured(task: Task) -> str:
    """What a plain task printed that nobody has seen yet."""
    if not task.executed:
        return ""
    hidden = [(a.out, a.err) for a in task.actions]
    out = "".join(o for o, _ in hidden if o) if (task.verbosity or 0) < 2 else ""
    err = "".join(e for _, e in hidden if e) if (task.verbosity or 0) < 1 else ""
    return out + err
