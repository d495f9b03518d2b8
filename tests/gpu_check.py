"""`doit gpu_check`: proves on a machine with a real GPU what CPUs cannot.

Discovery, lease, NCCL training with bf16, out-of-memory told as such, utilisation seen.  Prints one
line per proof; exit code 1 when one fails, 2 where there is no GPU.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

from gputasks.nodes import local_node
from gputasks.proc import run_text

TRAIN = """
import os, sys, time, torch, torch.distributed as dist
local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
dist.init_process_group("nccl", device_id=torch.device("cuda", local))
assert torch.cuda.device_count() == int(os.environ["LOCAL_WORLD_SIZE"]), torch.cuda.device_count()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4096, 4096).cuda(), device_ids=[local])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
began = time.time()
while time.time() - began < 5:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(torch.randn(4096, 4096, device="cuda")).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
total = torch.ones(1, device="cuda"); dist.all_reduce(total)
assert int(total) == dist.get_world_size()
if dist.get_rank() == 0:
    torch.save(model.state_dict(), "model.pt")
    print("bf16", torch.cuda.is_bf16_supported(), "loss", float(loss))
dist.destroy_process_group()
"""

OOM = "import torch\nkept = [torch.empty(1 << 34, device='cuda') for _ in range(1000)]\n"

DODO = """
import gputasks as gt
DOIT_CONFIG = gt.doit_config()
def task_train():
    return gt.train("train.py", artifacts=["model.pt"], resources=gt.Resources(gpu_count="auto"))
def task_oom():
    return gt.train("oom.py", resources=gt.Resources(gpu_count=1))
"""


def say(ok: bool, what: str) -> bool:
    print(("ok      " if ok else "FAILED  ") + what, flush=True)
    return ok


def main() -> int:
    node = local_node()
    if not node.gpus:
        print(f"no GPU on this machine ({node.gpu_source}): nothing was proved")
        return 2
    for gpu in node.gpus:
        say(True, f"found {gpu.visible_as}: {gpu.name}, {gpu.memory_mib} MiB, {gpu.uuid}")
    with tempfile.TemporaryDirectory(prefix="gputasks-gpu-") as folder:
        for name, text in (("train.py", TRAIN), ("oom.py", OOM), ("dodo.py", DODO)):
            Path(folder, name).write_text(textwrap.dedent(text))
        doit = [sys.executable, "-m", "doit"]
        training = subprocess.Popen([*doit, "train"], cwd=folder, stderr=subprocess.PIPE, text=True)
        highest = 0
        while training.poll() is None:
            seen = run_text(
                ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"],
                timeout_s=30,
            )
            highest = max([highest, *(int(w) for w in seen.out.split() if w.isdigit())])
        log = training.communicate()[1]
        good = [
            say(
                training.returncode == 0 and os.path.exists(f"{folder}/model.pt"),
                f"NCCL training with bf16 on {len(node.gpus)} GPU(s)",
            )
        ]
        if not good[0]:
            print(log)
        good.append(say(highest > 10, f"utilisation seen: {highest} %"))
        again = subprocess.run(
            [*doit, "train"], cwd=folder, capture_output=True, text=True, check=False
        )
        good.append(say("up to date" in again.stderr, "second run is skipped"))
        oom = subprocess.run(
            [*doit, "oom"], cwd=folder, capture_output=True, text=True, check=False
        )
        good.append(
            say(
                oom.returncode == 1 and "OutOfMemoryError" in oom.stderr,
                "out of memory told as such",
            )
        )
        print(oom.stderr)
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
