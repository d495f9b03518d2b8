"""The only door to processes: guarded runs, short helper programs, sweeps, signals."""

from gputasks.proc.guarded import Ended, Guarded, Hide, Start, kill_all, stop_all, wait_all
from gputasks.proc.interrupts import Interrupted, interrupts
from gputasks.proc.sweep import kill_marked, living, sweep_mark
from gputasks.proc.text import Completed, run_text

__all__ = [
    "Completed",
    "Ended",
    "Guarded",
    "Hide",
    "Interrupted",
    "Start",
    "interrupts",
    "kill_all",
    "kill_marked",
    "living",
    "run_text",
    "stop_all",
    "sweep_mark",
    "wait_all",
]
