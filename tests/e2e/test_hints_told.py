"""Hints reach the user as notes, once, right after the facts that they come from."""

from __future__ import annotations

import json

TRAIN = """\
import json, os, sys, time

def tell(**event):
    with open(os.environ["GPUTASKS_EVENTS"], "a") as file:
        file.write(json.dumps({"t": time.time(), **event}) + "\\n")

class OutOfMemoryError(RuntimeError):
    pass

if os.environ["RANK"] == "0":
    tell(kind="facts", rank=0, batch_size=64, global_batch_size=128, world_size=2, device="cpu",
         precision="bf16-mixed", num_workers=4096, accumulate_grad_batches=1)
    tell(kind="progress", rank=0, step=1)
    if "--fails" in sys.argv and os.environ["GPUTASKS_ATTEMPT"] != "2":
        raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.50 GiB.")
    os.makedirs("ckpt", exist_ok=True)
    open("ckpt/x", "w").write("1")
    tell(kind="facts", rank=0, best_model_path="ckpt/x")
"""

PRECISION = "precision=16 became bf16-mixed on CPU"
BATCH = "global batch is 2 x 64 = 128 (per-worker batch 64, 2 workers)"
MEMORY = (
    "out of memory with a per-worker batch of 64: 32 and accumulate_grad_batches=2"
    " keep the global batch of 128"
)


def train(project, python: str, more: str = "") -> None:
    project.write("train.py", TRAIN)
    project.dodo(f"""
        def task_train():
            return gt.train("train.py", python={python!r}, nproc_per_node=2, artifacts=["ckpt"],
                            params={{"batch_size": 64, "precision": 16}},
                            resources=gt.Resources(gpu_count=0), {more})
    """)


def told(project) -> list[dict]:
    lines = (project.root / ".gputasks/runs/train/latest/events.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_hints_are_notes_right_after_the_facts(project, fake_python):
    train(project, fake_python)
    done = project.doit()
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(PRECISION) == 1
    assert done.stderr.count(BATCH) == 1
    assert "num_workers=4096 x 2 workers = 8192 loader processes on " in done.stderr
    events = told(project)
    first = next(i for i, e in enumerate(events) if e["kind"] == "facts")
    notes = events[first + 1 : first + 4]
    assert [(e["kind"], e["level"]) for e in notes] == [("note", "info")] * 3
    assert [e["text"] for e in notes[:2]] == [PRECISION, BATCH]
    assert sum(e["kind"] == "facts" for e in events) == 2


def test_failed_attempt_is_told_what_would_help_and_the_next_one_does_not_repeat(
    project, fake_python
):
    train(project, fake_python, 'args=["--fails"], retries=2')
    done = project.doit()
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(BATCH) == 1
    texts = [e["text"] for e in told(project) if e["kind"] == "note"]
    assert texts.count(MEMORY) == 2
