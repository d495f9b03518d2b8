"""Whether the ranks trained together.

Lightning's `devices="auto"` on CPUs, Accelerate without `ACCELERATE_USE_CPU`, and a script that
never makes a process group all train once per rank, each alone, and end with code 0.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # importing typing would take as long as the rest
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

SWITCH = "GPUTASKS_WORLD_CHECK"


class TrainedAloneError(RuntimeError):
    """The ranks did not form one group: there were as many trainings as ranks."""

    gputasks_hint = (
        'with Lightning: `Trainer(devices=int(os.environ.get("LOCAL_WORLD_SIZE", 1)),'
        ' num_nodes=int(os.environ.get("GROUP_WORLD_SIZE", 1)), strategy="ddp")`;'
        " with Accelerate on CPUs: `ACCELERATE_USE_CPU=true`;"
        " else: `torch.distributed.init_process_group()`;"
        f" `{SWITCH}=off` if it is meant so"
    )

    def __init__(self, text: str) -> None:
        super().__init__(f"{text}\nhint: {self.gputasks_hint}")


def checked(world_size: int) -> bool:
    """True when the ranks have to work together."""
    return world_size > 1 and os.environ.get(SWITCH, "").lower() != "off"


class WorldCheck:
    """Sees the largest process group that the script ever made.

    Asking at the end is too late, since a tidy script has destroyed its group by then.  So it waits
    on `sys.meta_path` for the module that has `init_process_group`, and puts a function around it.
    """

    module = "torch.distributed.distributed_c10d"

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size
        self.largest = 1
        self.enabled = checked(world_size)
        if self.enabled:
            sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Answer for one module, with what the other finders find (part of the finder protocol)."""
        if name != self.module:
            return None
        sys.meta_path.remove(self)
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target)
            if spec is not None and spec.loader is not None:
                self._hook(spec.loader)
                return spec
        return None

    def _hook(self, loader: Any) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            self._wrap(module)

        loader.exec_module = exec_module

    def _wrap(self, module: Any) -> None:
        import functools

        original = module.init_process_group

        @functools.wraps(original)
        def init_process_group(*args: Any, **keys: Any) -> Any:
            made = original(*args, **keys)
            self.largest = max(self.largest, int(module.get_world_size()))
            return made

        module.init_process_group = init_process_group

    def verify(self) -> None:
        """Judge a script that ended well.  One that never imported torch is not judged.

        Raises:
            TrainedAloneError: the ranks did not work as one group.

        """
        if not self.enabled or "torch" not in sys.modules:
            return
        size = min(self.largest, self._accelerate())
        if size < self.world_size:
            how = "each trained alone" if size == 1 else "never all worked together"
            raise TrainedAloneError(
                f"{self.world_size} ranks were started but {how}: world size {size}"
            )

    def _accelerate(self) -> int:
        """What Accelerate took for the number of processes, if it was there to train.

        Under Lightning it is not, although a model of `transformers` may have imported it.
        """
        state: Any = sys.modules.get("accelerate.state")
        if state is None or {"pytorch_lightning", "lightning.pytorch"} & sys.modules.keys():
            return self.world_size
        try:
            # Asking `PartialState()` itself would make one.
            return int(state.PartialState._shared_state["num_processes"])  # noqa: SLF001
        except (AttributeError, KeyError, TypeError, ValueError):
            return self.world_size
