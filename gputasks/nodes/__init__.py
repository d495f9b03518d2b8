"""What a node has: GPUs, CPUs, memory, without importing torch."""

from gputasks.nodes.local import local_node
from gputasks.nodes.visible import visible_gpus

__all__ = ["local_node", "visible_gpus"]
