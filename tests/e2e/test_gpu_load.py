"""What leased GPUs do is sampled while a task runs, and nothing of that outlives it."""

from __future__ import annotations

import csv
import json
import os
import signal
import time

import pytest
from conftest import eventually

from gputasks.events import EventLog, Follower
from gputasks.nodes.sampler import sampling
from gputasks.proc import living
from gputasks.specs import Gpu
from gputasks.testing import fake_nvidia_smi

USAGE = {"GPU-aaaa": (12, 2048), "GPU-bbbb": (95, 30000)}


def fake(project):
    smi = project.root.parent / "smi"
    fake_nvidia_smi(str(smi), list(USAGE), usage=USAGE)
    project.env["PATH"] = f"{smi}:{os.environ['PATH']}"


def hold(project, code: str = "pass") -> None:
    """A task on one GPU that runs until `go` is there."""
    project.write(
        "hold.py",
        f"import os, time\nopen('began', 'w').close()\nwhile not os.path.exists('go'):\n    time.sleep(0.02)\n{code}\n",
    )
    project.dodo("""
        def task_job():
            return gt.command(["python", "hold.py"], stop_grace="2s",
                              resources=gt.Resources(gpu_count=1))
    """)


def samples(project) -> list[dict[str, str]]:
    path = project.root / ".gputasks/runs/job/latest/attempt-0/gpus.csv"
    return list(csv.DictReader(path.read_text().splitlines())) if path.exists() else []


def run_json(project):
    return json.loads((project.root / ".gputasks/runs/job/latest/run.json").read_text())


def test_samples_events_and_record(project):
    fake(project)
    hold(project)
    process = project.start(GPUTASKS_OUTPUT="json")
    eventually(lambda: len(samples(project)) >= 3, 20)
    (project.root / "go").touch()
    assert process.wait(20) == 0, project.output(process)
    rows = samples(project)
    assert {row["uuid"] for row in rows} == {"GPU-aaaa"}, "only the leased one"
    expected = {"utilisation_percent": "12", "memory_mib": "2048", "power_w": "61.25"}
    assert expected.items() <= rows[0].items()
    assert rows[0]["temperature_c"] == "41"
    assert abs(float(rows[0]["time"]) - time.time()) < 60
    (gpu,) = run_json(project)["gpus"]
    assert gpu == {
        "id": "0", "uuid": "GPU-aaaa", "utilisation": 12, "memory_mib": 2048, "samples": len(rows),
    }  # fmt: skip
    shown = [json.loads(line) for line in project.output(process).splitlines()]
    told = [e for e in shown if e["kind"] == "gpu"]
    assert told[0]["gpus"] == [{"id": "0", "util": 12, "mem_mib": 2048, "mem_total_mib": 40960}]
    assert next(e for e in shown if e["kind"] == "finished")["gpus"] == [gpu]
    project.gone()


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGKILL])
def test_the_sampler_ends_with_doit(project, signum):
    fake(project)
    hold(project)
    process = project.start()
    eventually(lambda: samples(project), 20)
    assert any("nvidia-smi" in line for line in project.living().values())
    os.kill(process.pid, signum)
    process.wait(20)
    project.gone()


def test_the_sampler_ends_with_a_task_that_fails(project):
    fake(project)
    hold(project, "raise SystemExit(3)")
    process = project.start()
    eventually(lambda: samples(project), 20)
    (project.root / "go").touch()
    assert process.wait(20) == 1
    assert run_json(project)["gpus"][0]["utilisation"] == 12
    project.gone()


def test_a_driver_that_answers_nonsense_is_no_fault_of_the_run(project):
    fake(project)
    smi = project.root.parent / "smi" / "nvidia-smi"
    smi.write_text(
        smi.read_text().replace("while :; do", "while :; do echo 'Unable to determine'; exit 9")
    )
    hold(project)
    (project.root / "go").touch()
    result = project.doit()
    assert result.returncode == 0, result.stderr
    assert not samples(project)
    assert run_json(project)["gpus"][0]["samples"] == 0


def sampled(tmp_path, gpus, monkeypatch, rounds=2):
    """Rounds of a sampler on its own: events, summary."""
    fake_nvidia_smi(str(tmp_path / "smi"), list(USAGE), usage=USAGE)
    monkeypatch.setenv("PATH", f"{tmp_path / 'smi'}:{os.environ['PATH']}")
    log = EventLog(str(tmp_path / "events.jsonl"))
    with sampling(gpus, str(tmp_path), mark=str(tmp_path), log=log) as sampler:
        if sampler is None:
            return [], []
        follower, events = Follower(log.path), []

        def enough():
            sampler.look()
            events.extend(follower.events())
            return len(events) >= rounds

        eventually(enough, 20)
    assert not living(f"{tmp_path}/gpus.csv")
    return events, sampler.summary()


def test_all_leased_gpus_are_in_each_event(tmp_path, monkeypatch):
    gpus = [Gpu(1, "GPU-bbbb", visible_as="1"), Gpu(0, "GPU-aaaa", visible_as="0")]
    events, summary = sampled(tmp_path, gpus, monkeypatch)
    assert all({g["id"] for g in e["gpus"]} == {"0", "1"} for e in events)
    assert [(g["id"], g["utilisation"], g["memory_mib"]) for g in summary] == [
        ("1", 95, 30000),
        ("0", 12, 2048),
    ]


def test_what_has_no_utilisation_is_not_asked(tmp_path, monkeypatch):
    assert sampled(tmp_path, [], monkeypatch) == ([], [])
    assert sampled(tmp_path, [Gpu(0, "MIG-1234", visible_as="MIG-1234")], monkeypatch) == ([], [])
    monkeypatch.setenv("PATH", "/nowhere")
    with sampling(
        [Gpu(0, "GPU-a")], str(tmp_path), mark="m", log=EventLog(str(tmp_path / "e"))
    ) as none:
        assert none is None
