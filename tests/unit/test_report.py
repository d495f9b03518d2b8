"""From events to text: golden lines of both faces."""

from __future__ import annotations

import io
import json

import pytest

from gputasks.errors import ConfigError, ManyErrors
from gputasks.report import text
from gputasks.report.errors import show
from gputasks.report.faces import Face, JsonFace, PlainFace
from gputasks.report.stream import Stream
from gputasks.report.view import TaskView

PROGRESS = {
    "t": 1.0, "kind": "progress", "step": 40, "total": 120, "epoch": 1, "max_epochs": 3, "rate": 12.34,
    "eta_s": 42.0, "metrics": {"loss": 0.31234, "lr-Adam": 0.001, "val_acc": 0.9512},
}  # fmt: skip
FINISHED = {
    "t": 9.0, "kind": "finished", "outcome": "succeeded", "duration_s": 41.2, "checkpoint": "ckpt/best.ckpt",
    "artifacts": [{"name": "m", "path": "ckpt", "bytes": 1234567}], "metrics": {"lr-Adam": 1e-3, "val_acc": 0.9512},
}  # fmt: skip


def test_a_task_as_it_goes():
    view = TaskView("train", started=0.0)
    assert view.title(5.0) == "train  starts  5s"
    view.apply({"kind": "waiting", "text": "waiting for 1 free GPU(s), 0 free; GPU 0: pid 42"})
    assert view.title(6.0) == "train  waits  6s"
    view.apply({"kind": "placed", "world_size": 2})
    view.apply({"kind": "phase", "phase": "train"})
    view.apply({"kind": "rank", "rank": 1})
    assert view.title(7.0) == "train  1/2 workers ready  7s"
    view.apply(PROGRESS)
    assert view.title(70.0) == "train  epoch 2/3  1m10s"
    assert view.fraction() == pytest.approx(1 / 3)
    assert (
        view.numbers()
        == "step 40/120  12.3 it/s  eta 42s  val_acc 0.9512  loss 0.3123  lr-Adam 0.001"
    )
    view.apply({"kind": "progress", "epoch": 3, "max_epochs": 3, "step": 120, "total": 120})
    assert view.title(80.0) == "train  epoch 3/3  1m20s"
    view.apply(FINISHED)
    assert text.finished_text("train", view.finished) == (
        "train  succeeded in 41s · ckpt (1.2 MB) · best ckpt/best.ckpt · val_acc 0.9512 · lr-Adam 0.001"
    )


@pytest.mark.parametrize("value", ["nan", "inf", None, [1], {"a": 1}, "x" * 500])
def test_odd_metrics_are_shown_and_short(value):
    view = TaskView("t", started=0.0)
    view.apply(
        {"kind": "progress", "step": "x", "total": 0, "metrics": {"\x1b[31mloss" * 9: value}}
    )
    assert view.fraction() is None
    assert "\x1b" not in view.numbers()
    assert len(view.numbers()) < 100


def test_reasons_and_placement():
    assert text.reasons_text(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
    nodes = [{"node": "hal", "gpus": [{"id": "0"}, {"id": "1"}], "nproc": 2}]
    placed = {"kind": "placed", "nodes": nodes, "world_size": 2, "backend": "nccl"}
    assert text.event_text(placed) == "2 workers on hal, GPU 0, 1, nccl"
    assert (
        text.event_text({"kind": "placed", "nodes": [{"node": "hal", "gpus": []}], "world_size": 1})
        is None
    )
    facts = {"kind": "facts", "batch_size": 16, "global_batch_size": 32, "precision": "bf16-mixed"}
    assert text.event_text(facts) == "batch 16 per worker, 32 in all; precision bf16-mixed"


def lines(face_class, *, progress_s: str = "30", monkeypatch) -> list[str]:
    monkeypatch.setenv("GPUTASKS_PROGRESS_S", progress_s)
    out = io.StringIO()
    face: Face = face_class(Stream(out))
    view = TaskView("train", started=0.0)
    face.started(view, ["lr: 1 -> 2"])
    for event in (
        {"kind": "note", "text": "resuming"},
        PROGRESS,
        PROGRESS,
        {**PROGRESS, "step": 120},
        {**PROGRESS, "step": 120},
    ):
        view.apply(event)
        face.event(view, event)
    view.apply(FINISHED)
    face.ended(view, "error: `train` failed\n  why", "", 42.0)
    face.skipped("data", "up to date")
    face.done(failed=True)
    return out.getvalue().splitlines()


def test_plain_lines(monkeypatch):
    got = [
        line[9:] if line[2:3] == ":" else line for line in lines(PlainFace, monkeypatch=monkeypatch)
    ]
    assert got[0] == "train  runs: lr: 1 -> 2"
    assert got[1] == "train: resuming"
    # Twice 40 of 120 within 30 s is no line, 120 of 120 is one.
    assert [g for g in got if "step" in g and "120/120" in g] == [g for g in got if "step" in g]
    assert len([g for g in got if "step" in g]) == 1
    assert got[-3:] == ["error: `train` failed", "  why", "-- data (up to date)"]
    often = lines(PlainFace, progress_s="0", monkeypatch=monkeypatch)
    assert len([g for g in often if "step 40/120" in g]) == 2


def test_json_lines(monkeypatch):
    got = [json.loads(line) for line in lines(JsonFace, monkeypatch=monkeypatch)]
    assert [g["kind"] for g in got] == ["task", "note", *["progress"] * 4, "task", "task", "done"]
    assert all(g.get("task", "train") in ("train", "data") for g in got)
    assert got[-2]["status"] == "up_to_date"
    assert got[-3]["error"].startswith("error: ")


def test_a_stream_that_knows_little_or_is_gone():
    raw = io.BytesIO()
    ascii_only = io.TextIOWrapper(raw, encoding="ascii")
    Stream(ascii_only).line("✓ café")
    assert raw.getvalue() == b"\\u2713 caf\\xe9\n"
    ascii_only.detach()
    closed = io.StringIO()
    stream = Stream(closed)
    closed.close()
    stream.line("nobody listens")


def test_errors_all_at_once_and_without_colour_in_a_pipe():
    out = io.StringIO()
    show(
        ManyErrors([ConfigError("one", place="a:1", hint="do"), ConfigError("two", facts=["f"])]),
        out,
    )
    assert out.getvalue() == "error: one\n  --> a:1\n\nhint: do\n\nerror: two\n  f\n"
