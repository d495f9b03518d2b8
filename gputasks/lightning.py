"""The progress callback, for those who would rather see it in their script.

Unchanged scripts need none of this: Lightning finds the callback by its entry point.  Added by
hand, it does the same once, not twice:

    from gputasks.lightning import ProgressCallback

    trainer = Trainer(callbacks=[ProgressCallback()])

It is inert when the script does not run under gputasks.
"""

from __future__ import annotations

import sys
from typing import Any

from gputasks.agent.payload.gputasks_worker.callback import callback_class

__all__ = ["ProgressCallback"]  # noqa: F822  made when it is asked for

PACKAGES = ("pytorch_lightning", "lightning.pytorch")
"""The two names under which Lightning is published; a trainer takes callbacks of its own only."""


def __getattr__(name: str) -> Any:
    """`ProgressCallback`, of the Lightning that is imported already, or else of the first found.

    Raises:
        AttributeError: any other name.
        ImportError: there is no Lightning.

    """
    if name != "ProgressCallback":
        raise AttributeError(f"module `{__name__}` has no `{name}`")
    imported = [p for p in PACKAGES if p in sys.modules]
    for package in imported or PACKAGES:
        try:
            return callback_class(package)
        except ModuleNotFoundError:
            continue
    raise ImportError("`ProgressCallback` needs `pytorch-lightning` or `lightning`")
