"""From events to text: golden lines of both faces."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputasks.errors import ConfigError, ManyErrors
from gputasks.events import EventLog, Follower
from gputasks.report import Reporter, text
from gputasks.report.block import Layout
from gputasks.report.errors import show
from gputasks.report.faces import Face, JsonFace, PlainFace
from gputasks.report.glyphs import ASCII, UNICODE, glyphs
from gputasks.report.stream import Stream
from gputasks.report.trend import Trend
from gputasks.report.view import TaskView, loss_name

PROGRESS = {
    "t": 1.0, "kind": "progress", "step": 40, "total": 120, "epoch": 1, "max_epochs": 3, "rate": 12.34,
    "eta_s": 42.0, "metrics": {"loss": 0.31234, "lr-Adam": 0.001, "val_acc": 0.9512},
}  # fmt: skip
FINISHED = {
    "t": 9.0, "kind": "finished", "outcome": "succeeded", "duration_s": 41.2, "checkpoint": "ckpt/best.ckpt",
    "artifacts": [{"name": "m", "path": "ckpt", "bytes": 1234567}], "metrics": {"lr-Adam": 1e-3, "val_acc": 0.9512},
}  # fmt: skip


def drawn(view, now: float, columns: int = 79, glyphs=UNICODE, rows: int = 23) -> list[str]:
    lines = Layout(columns, rows, glyphs, now, 0).lines([view])
    return [line.plain for line in lines]


def test_a_task_as_it_goes():
    view = TaskView("train", started=0.0)
    assert drawn(view, 5.0) == ["train  starts  5s", "  ⠋"]
    view.apply({"kind": "waiting", "text": "waiting for 1 free GPU(s), 0 free; GPU 0: pid 42"})
    assert drawn(view, 6.0) == [
        "train  waits  6s",
        "  ⠋ waiting for 1 free GPU(s), 0 free; GPU 0: pid 42",
    ]
    view.apply({"kind": "placed", "world_size": 2})
    view.apply({"kind": "phase", "phase": "train", "t": 6.0})
    view.apply({"kind": "rank", "rank": 1, "t": 7.0})
    assert drawn(view, 7.0) == ["train  trains  7s", "  ⠋ ranks 1/2"]
    assert drawn(view, 13.0) == ["train  trains  13s", "  ⠋ ranks 1/2  silent: 0"]
    view.apply({"kind": "rank", "rank": 0, "t": 13.0})
    view.apply(PROGRESS)
    assert drawn(view, 70.0) == [
        "train  trains  1m10s",
        "  ━━━━━━━───────────── step 40/120  epoch 2/3  eta 42s  12.3 it/s",
        "  loss 0.3123  val_acc 0.9512  lr-Adam 0.001",
    ]
    assert view.fraction() == pytest.approx(1 / 3)
    view.apply({**PROGRESS, "metrics": {"loss": 0.2}})
    view.apply({**PROGRESS, "metrics": {"loss": 0.1}})
    gpu = {"id": "0", "util": 87, "mem_mib": 12595, "mem_total_mib": 40960}
    view.apply({"kind": "gpu", "gpus": [gpu, {**gpu, "id": "1"}]})
    assert drawn(view, 71.0)[2:] == [
        "  loss 0.1 █▄▁  val_acc 0.9512  lr-Adam 0.001",
        "  gpu 0 87% 12.3/40.0 GiB  gpu 1 87% 12.3/40.0 GiB",
    ]
    assert drawn(view, 71.0, columns=39, glyphs=ASCII) == [
        "train  trains  1m11s",
        "  ###....... step 40/120  epoch 2/3",
        "  loss 0.1 #-_  val_acc 0.9512",
        "  gpu 0 87% 12.3/40.0 GiB",
    ]
    view.apply({"kind": "progress", "epoch": 3, "max_epochs": 3, "step": 120, "total": 120})
    assert "epoch 3/3" in drawn(view, 80.0)[1]
    view.apply(FINISHED)
    assert text.finished_text("train", view.finished) == (
        "train  succeeded in 41s · ckpt (1.2 MB) · best ckpt/best.ckpt · val_acc 0.9512 · lr-Adam 0.001"
    )


@pytest.mark.parametrize("columns", [1, 5, 19, 39, 79, 199])
@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
def test_no_line_of_the_block_is_wider_than_it_may_be(columns, glyphs):
    views = []
    for number in range(9):
        view = TaskView("训练" * 9 + str(number), started=0.0)
        for event in (
            {"kind": "placed", "world_size": 99},
            {"kind": "phase", "phase": "train", "t": 1.0},
            {"kind": "waiting", "text": "für " * 99} if number == 4 else {"kind": "rank", "rank": 1, "t": 1.0},
            {"kind": "gpu", "gpus": [{"id": i, "util": i, "mem_mib": 9, "mem_total_mib": 9} for i in range(number)]},
            *[{**PROGRESS, "metrics": {"loss": 1 / (i + 1), "é" * 40: i}} for i in range(70)],
        ):  # fmt: skip
            view.apply(event)
        views.append(view)
    for rows in (1, 2, 7, 23, 99):
        for count in (1, 2, 9):
            lines = Layout(columns, rows, glyphs, 99.0, 5).lines(views[:count])
            assert len(lines) <= rows
            assert all(line.cell_len <= columns for line in lines), lines
    assert "and" in str(Layout(79, 9, glyphs, 99.0, 5).lines(views)[-1])


def test_the_course_of_a_number_takes_no_more_room_in_time():
    trend = Trend()
    for i in range(100_000):
        trend.add(1 / (1 + i))
        trend.add(float("nan"))
    spark = trend.spark(UNICODE.ramp)
    assert 25 <= len(spark) <= 30
    assert spark[0] == "█"
    assert spark[-1] == "▁"
    assert len(trend.spark(UNICODE.ramp, 7)) == 7
    flat = Trend()
    flat.add(2.0)
    assert flat.spark("ab") == ""
    flat.add(2.0)
    assert flat.spark("ab") == "aa"


def test_the_loss_of_the_training_is_the_one_that_is_drawn():
    assert loss_name({"val_loss": 1, "train_loss": 1, "acc": 1}) == "train_loss"
    assert loss_name({"val_loss": 1, "loss": 1}) == "loss"
    assert loss_name({"val/loss": 1}) == "val/loss"
    assert loss_name({"acc": 1}) == ""


@pytest.mark.parametrize(
    ("encoding", "environ", "expected"),
    [
        ("utf-8", {}, UNICODE),
        ("utf-8", {"LANG": "en_US.UTF-8"}, UNICODE),
        ("utf-8", {"LC_ALL": "C", "LANG": "en_US.UTF-8"}, ASCII),
        ("utf-8", {"LANG": "de_DE"}, ASCII),
        ("iso-8859-1", {"LANG": "de_DE.UTF-8"}, ASCII),
        ("utf-8", {"LC_ALL": "C.utf8", "TERM": "screen"}, UNICODE),
        ("utf-8", {"LC_ALL": "C.UTF-8", "TERM": "linux"}, ASCII),
        (None, {}, UNICODE),
    ],
)
def test_characters_that_the_terminal_can_show(encoding, environ, expected):
    assert glyphs(encoding, environ) is expected


def test_many_gpus_are_told_as_a_few_numbers():
    gpus = [
        {"id": i, "util": 10 * i, "mem_mib": 1024 * i, "mem_total_mib": 81920} for i in range(8)
    ]
    assert text.gpu_texts(gpus) == ["8 gpus", "40% (from 0 to 70%)", "0.0 to 7.0 of 80.0 GiB"]
    assert text.gpu_texts([{"id": "0", "util": None, "mem_mib": None}]) == ["gpu 0"]


def test_gpus_with_little_to_do_are_told_after_a_long_run():
    gpus = [{"id": "0", "utilisation": 12.0}]
    told = text.finished_text("t", {"outcome": "succeeded", "duration_s": 300, "gpus": gpus})
    assert "GPU utilisation was 12 % (median): " in told
    for duration_s, used in ((100, 12.0), (300, 30.0), (300, None)):
        gpus = [{"id": "0", "utilisation": used}]
        assert text.idle_texts(gpus, duration_s) == []


def test_nothing_of_somebody_elses_moves_the_cursor():
    assert text.clean("a\x1b[31mred\x1b[0m\x1b]0;title\x07\n 10%\r 99%\r\nb\x08\tc") == (
        "ared\n 99%\nb       c"
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


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip
NAMES = [
    "t",
    "rank",
    "step",
    "total",
    "epoch",
    "max_epochs",
    "rate",
    "eta_s",
    "metrics",
    "text",
    "batch_size",
]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(["rank", "progress", "facts", "note"]),
                          st.dictionaries(st.sampled_from(NAMES), JSON))), st.booleans())  # fmt: skip
def test_whatever_a_worker_writes_is_no_fault_of_the_run(tmp_path_factory, events, plain):
    folder = tmp_path_factory.mktemp("run")
    log = EventLog(str(folder / "events.jsonl"))
    for kind, fields in events:
        log.write(**{**fields, "kind": kind})
    out = io.StringIO()
    reporter = Reporter(io.StringIO(), {})
    reporter.face = PlainFace(Stream(out)) if plain else Face(Stream(out))
    view = TaskView("t", started=0.0)
    reporter._read(view, Follower(log.path))
    assert len(drawn(view, 5.0)) >= 2
    view.numbers()
    assert "\x1b" not in out.getvalue()


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


def test_workers_that_do_not_come_are_told_once(monkeypatch):
    out = io.StringIO()
    face = PlainFace(Stream(out))
    view = TaskView("train", started=0.0)
    now = [100.0]
    monkeypatch.setattr("time.time", lambda: now[0])

    def tick(moment, *events):
        now[0] = moment
        for event in events:
            view.apply({"t": moment, **event})
        face.tick([view])
        return [line[9:] for line in out.getvalue().splitlines()]

    placed = {"kind": "placed", "world_size": 4}
    assert tick(100.0, placed, {"kind": "phase", "phase": "train"}) == []
    assert tick(110.0) == [], "torch is imported"
    assert tick(111.0, {"kind": "rank", "rank": 0}, {"kind": "rank", "rank": 2}) == []
    assert tick(117.0) == ["train: ranks 2/4, silent: 1, 3"]
    assert len(tick(120.0)) == 1
    ranks = [{"kind": "rank", "rank": 1}, {"kind": "rank", "rank": 3}]
    assert tick(121.0, *ranks)[1:] == ["train: ranks 4/4"]
    assert len(tick(150.0)) == 2


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
