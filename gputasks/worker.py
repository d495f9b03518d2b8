"""`gputasks.progress(step=, total=, epoch=, max_epochs=, **metrics)` for native scripts.

One implementation, the worker's: it also runs where gputasks is not installed, as
`gputasks_worker.progress.progress`.
"""

from gputasks.agent.payload.gputasks_worker.progress import progress

__all__ = ["progress"]
