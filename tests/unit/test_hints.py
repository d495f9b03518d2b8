"""Each hint comes from a fact; no facts, no hints."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputasks.hints import hints

FRAMEWORK = {
    "batch_size": 64, "world_size": 4, "precision": "32-true", "accumulate_grad_batches": 1,
    "num_workers": 2, "pin_memory": True, "persistent_workers": True, "device": "cuda",
    "max_epochs": 10,
}  # fmt: skip


def told(params=(), *, world=4, cpus=16, outcome=None, cause=None, **framework):
    facts = {
        "world_size": world, "local_world_size": world, "cpu_count": cpus, "params": dict(params),
        "framework": {**FRAMEWORK, **framework}, "outcome": outcome, "cause": cause,
    }  # fmt: skip
    return hints(facts)


def test_nothing_to_say():
    assert told() == []
    assert hints({}) == []
    assert hints({"world_size": 4, "cpu_count": 16, "params": {"batch_size": 64}}) == []


@pytest.mark.parametrize(
    ("params", "framework", "text"),
    [
        ({"batch_size": 64}, {}, "global batch is 4 x 64 = 256 (per-GPU batch 64, 4 workers)"),
        (
            {"data.batch_size": 64},
            {"device": "cpu"},
            "global batch is 4 x 64 = 256 (per-worker batch 64, 4 workers)",
        ),
        (
            {},
            {"accumulate_grad_batches": 2},
            "global batch is 4 x 64 x 2 = 512 (per-GPU batch 64, 4 workers, 2 batches accumulated)",
        ),
        (
            {"batch_size": 256},
            {},
            "batch_size=256 is the global batch: 4 x 64 (per-GPU batch 64, 4 workers)",
        ),
    ],
)
def test_batch(params, framework, text):
    assert told(params, **framework) == [text]


def test_batch_that_the_loader_does_not_have():
    assert told({"data": {"batch_size": 32}}) == [
        "global batch is 4 x 64 = 256 (per-GPU batch 64, 4 workers)",
        "batch_size=32, but the batches of the train loader have 64",
    ]


def test_batch_of_one_worker_needs_no_arithmetic():
    assert told({"batch_size": 64}, world=1) == []
    assert told(world=1, accumulate_grad_batches=8) == [
        "global batch is 64 x 8 = 512 (per-GPU batch 64, 1 worker, 8 batches accumulated)"
    ]


@pytest.mark.parametrize(
    ("asked", "effective", "device", "text"),
    [
        (16, "bf16-mixed", "cpu", "precision=16 became bf16-mixed on CPU"),
        ("16-mixed", "bf16-mixed", "cpu", "precision=16-mixed became bf16-mixed on CPU"),
        ("fp16", "32-true", "cuda", "precision=fp16 became 32-true on GPU"),
        ("16-mixed", "16-mixed", "cuda", None),
        (32, "32-true", "cpu", None),
        ("no", "32-true", "cpu", None),
        ("transformer-engine", "32-true", "cuda", None),  # not known, so nothing is said
        (None, "32-true", "cuda", None),
    ],
)
def test_precision(asked, effective, device, text):
    expected = [] if text is None else [text]
    assert told({"trainer.precision": asked}, precision=effective, device=device) == expected
    assert told({"trainer": {"precision": asked}}, precision=effective, device=device) == expected


@pytest.mark.parametrize(
    ("world", "cpus", "framework", "text"),
    [
        (
            4, 16, {"num_workers": 8},
            "num_workers=8 x 4 workers = 32 loader processes on 16 cores: at most 4 each",
        ),
        (
            4, 2, {"num_workers": 1},
            "num_workers=1 x 4 workers = 4 loader processes on 2 cores: 0 leaves them to the training",
        ),
        (
            4, 16, {"num_workers": 0},
            "num_workers=0: the GPU waits while a batch is loaded; 16 cores for 4 workers allow 4 each",
        ),
        (4, 4, {"num_workers": 1}, None),
        (8, 4, {"num_workers": 0}, None),  # there is nothing to give
        (4, 16, {"num_workers": 0, "device": "cpu"}, None),  # the training needs the cores itself
        (
            4, 16, {"persistent_workers": False},
            "persistent_workers=False: 8 loader processes start anew in each of 10 epochs",
        ),
        (4, 16, {"persistent_workers": False, "max_epochs": 1}, None),
        (4, 16, {"persistent_workers": None, "pin_memory": None}, None),
        (
            4, 16, {"pin_memory": False},
            "pin_memory=False: the training waits for each copy of a batch to the GPU",
        ),
        (4, 16, {"pin_memory": False, "device": "cpu"}, None),
    ],
)  # fmt: skip
def test_loaders(world, cpus, framework, text):
    assert told(world=world, cpus=cpus, **framework) == ([] if text is None else [text])


def test_out_of_memory():
    cause = "torch.OutOfMemoryError: tried to allocate 2.50 GiB on GPU 0"
    text = (
        "out of memory with a per-GPU batch of 64: 32 and accumulate_grad_batches=2"
        " keep the global batch of 256"
    )
    params = {"batch_size": 64, "precision": 16}
    assert told(params, outcome="failed", cause=cause) == [text]
    assert told(params, outcome="failed", cause="ValueError: bad") == []
    assert told(params, outcome="failed", cause=cause, batch_size=1) == []


def values(*usual):
    return st.one_of(st.none(), st.sampled_from(usual), st.integers(), st.text(), st.booleans())


@given(
    st.fixed_dictionaries(
        {
            "world_size": values(4), "local_world_size": values(4), "cpu_count": values(16),
            "params": st.dictionaries(st.sampled_from(["batch_size", "precision"]), values(16)),
            "framework": st.fixed_dictionaries({k: values(v) for k, v in FRAMEWORK.items()}),
            "outcome": values("failed"), "cause": values("OutOfMemoryError"),
        }
    )
)  # fmt: skip
def test_whatever_a_worker_sends_no_run_ends_of_it(facts):
    assert all(isinstance(text, str) for text in hints(facts))
