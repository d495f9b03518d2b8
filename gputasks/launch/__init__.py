"""How a placement is started, and how its end is understood.

One file per way of starting (`local`, later `ssh`, `docker`, `slurm`, …); they never import each
other.  What they share is about the end: `failures` finds the culprit among the ranks, with what
torch's launcher printed (`torchrun_log`), what the ranks wrote down, and the words in `causes`;
`stalls` tells silence from work, and what everybody hangs in (`stacks`); `memory` asks the kernel
whether it killed for lack of memory.
"""
