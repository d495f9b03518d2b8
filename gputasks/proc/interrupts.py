"""Signals of the driver: told once, whoever waits.

The first signal asks to stop, the same one again means at once.  Where something must be ended in
order (`deferred`), a signal is only noted; anywhere else in the main thread it raises.  A different
second signal is no second request: under `doit -n` a terminal's Ctrl-C reaches the workers as
SIGINT, and then doit ends them with SIGTERM.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PR_SET_PDEATHSIG = 1


class Interrupted(SystemExit):
    """A signal ended the run; the exit code is 128 + its number.

    doit's process runner sends it from a worker as class and text, hence the text form.
    """

    def __init__(self, number: int | str) -> None:
        value = int(number)
        super().__init__(value if value > 128 else 128 + value)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Interrupted, (self.code,))

    def __str__(self) -> str:
        return str(self.code)


class Interrupts:
    """What the driver was asked by signal."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all requests: a new start, or a forked child."""
        self.requested: int | None = None
        self.urgent = False
        self._deferring = 0
        self._raised = False
        self._counts: dict[int, int] = {}
        self._installed_in = 0

    def install(self) -> None:
        """Handle signals from now on; only in the main thread, and not those that are ignored.

        A shell without job control starts `doit &` with SIGINT ignored, nohup ignores SIGHUP: both
        mean it.
        """
        if threading.current_thread() is not threading.main_thread():
            return
        if self._installed_in == os.getpid():
            return
        if not self._installed_in:
            os.register_at_fork(after_in_child=self._in_child)
        self._installed_in = os.getpid()
        for signum in SIGNALS:
            if signal.getsignal(signum) is not signal.SIG_IGN:
                signal.signal(signum, self._on_signal)

    def _in_child(self) -> None:
        """Start anew in a worker of `doit -n`, and end with the process that forked it."""
        was = self._installed_in
        self.reset()
        self._installed_in = os.getpid() if was else 0
        if was and sys.platform == "linux":
            import ctypes

            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)

    def _on_signal(self, signum: int, _frame: object) -> None:
        self._counts[signum] = self._counts.get(signum, 0) + 1
        if self._counts[signum] > 1:
            self._hurry()
        if self.requested is None:
            self.requested = signum
        # At its end Python waits for threads, and an exception there would cut them off.
        if self._deferring or self._raised or not threading.main_thread().is_alive():
            return
        self._raised = True
        raise Interrupted(signum)

    def _hurry(self) -> None:
        self.urgent = True
        from gputasks.proc.guarded import kill_all

        kill_all()
        multiprocessing = sys.modules.get("multiprocessing")
        if multiprocessing is not None:
            for child in multiprocessing.active_children():
                child.terminate()

    @contextlib.contextmanager
    def deferred(self) -> Iterator[Interrupts]:
        """Inside, a signal is noted and raises nothing; only the main thread has to care."""
        main = threading.current_thread() is threading.main_thread()
        self._deferring += main
        try:
            yield self
        finally:
            self._deferring -= main


interrupts = Interrupts()
