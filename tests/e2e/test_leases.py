"""GPUs are leased, exclusive across processes and terminals; a fake driver tells of them."""

from __future__ import annotations

import os
import time

from conftest import eventually

from gputasks.testing import fake_nvidia_smi

HOLD = """\
import os, sys, time
name = sys.argv[1]
open("seen-" + name, "w").write(os.environ["CUDA_VISIBLE_DEVICES"] + "\\n" + str(time.time()))
time.sleep(float(sys.argv[2]))
open("ended-" + name, "w").write(str(time.time()))
"""


def gpus(project, *uuids, busy=None):
    smi = project.root.parent / "smi"
    fake_nvidia_smi(str(smi), uuids, busy=busy)
    project.env["PATH"] = f"{smi}:{os.environ['PATH']}"


def jobs(project, count, seconds=0.6, gpu_count=1, more=""):
    project.write("hold.py", HOLD)
    project.dodo(f"""
        def task_job():
            for i in range({count}):
                yield gt.command(["python", "hold.py", str(i), "{seconds}"], name=str(i),
                                 resources=gt.Resources(gpu_count={gpu_count!r}{more}))
    """)


def seen(project, name):
    visible, began = (project.root / f"seen-{name}").read_text().split("\n")
    return visible, float(began), float((project.root / f"ended-{name}").read_text())


def test_four_tasks_on_two_gpus(project):
    gpus(project, "GPU-aaaa", "GPU-bbbb")
    jobs(project, 4)
    result = project.doit("-n", "4")
    assert result.returncode == 0, result.stderr
    spans = [seen(project, i) for i in range(4)]
    assert {s[0] for s in spans} == {"0", "1"}
    for visible, began, ended in spans:
        for other, began2, ended2 in spans:
            if (visible, began) != (other, began2) and visible == other:
                assert ended <= began2 or ended2 <= began


def test_two_terminals_do_not_share(project):
    gpus(project, "GPU-aaaa", "GPU-bbbb")
    jobs(project, 3, seconds=2)
    first = project.start("job:0")
    eventually(lambda: (project.root / "seen-0").exists(), 20)
    second = project.start("job:1")
    eventually(lambda: (project.root / "seen-1").exists(), 20)
    third = project.start("job:2")
    eventually(lambda: "waiting for 1 free GPU" in project.output(third), 20)
    assert [p.wait(30) for p in (first, second, third)] == [0, 0, 0]
    assert {seen(project, 0)[0], seen(project, 1)[0]} == {"0", "1"}
    assert "job:0" in project.output(third)


def test_too_few_gpus_says_what_was_found(project):
    gpus(project, "GPU-aaaa")
    jobs(project, 1, gpu_count=4)
    result = project.doit()
    assert result.returncode == 2
    assert "asked for 4, this machine shows 1" in result.stderr
    assert "Fake GPU" in result.stderr


def test_no_driver_at_all(project):
    project.env["PATH"] = f"{os.path.dirname(os.path.realpath('/bin/sh'))}"
    jobs(project, 1, gpu_count=1)
    result = project.doit()
    assert result.returncode == 2
    assert "this machine shows 0" in result.stderr


def test_foreign_process_keeps_a_gpu_out_of_the_lease(project):
    gpus(project, "GPU-aaaa", "GPU-bbbb", busy={"GPU-aaaa": 4242})
    jobs(project, 1, seconds=0)
    assert project.doit().returncode == 0
    assert seen(project, 0)[0] == "1"
    gpus(project, "GPU-aaaa", busy={"GPU-aaaa": 4242})
    process = project.start()
    eventually(lambda: "pid 4242" in project.output(process), 20)
    process.terminate()
    assert process.wait(20) == 143
    jobs(project, 1, seconds=0, more=", use_busy_gpus=True")
    assert project.doit().returncode == 0


def test_visible_devices_of_the_caller_are_the_universe(project):
    gpus(project, "GPU-8932f937-d72c", "GPU-bbbb", "GPU-cccc")
    jobs(project, 1, seconds=0, gpu_count="auto")
    for given, expected in (
        ("2,0", "2,0"), ("GPU-8932f937", "0"), ("", ""), ("1,7,0", "1"),
        ("MIG-GPU-bbbb/1/2", "MIG-GPU-bbbb/1/2"), ("MIG-5a5a", "MIG-5a5a"),
    ):  # fmt: skip
        assert project.doit(CUDA_VISIBLE_DEVICES=given).returncode == 0
        assert seen(project, 0)[0] == expected, given


def test_inventory_is_fresh_for_each_run(project):
    gpus(project, "GPU-aaaa")
    jobs(project, 1, seconds=0, gpu_count=2)
    assert project.doit().returncode == 2
    gpus(project, "GPU-aaaa", "GPU-bbbb")
    assert project.doit().returncode == 0
    assert seen(project, 0)[0] == "0,1"


def test_zero_hides_all_and_nothing_asked_changes_nothing(project):
    gpus(project, "GPU-aaaa")
    jobs(project, 1, seconds=0, gpu_count=0)
    assert project.doit(CUDA_VISIBLE_DEVICES="0").returncode == 0
    assert seen(project, 0)[0] == ""
    jobs(project, 1, seconds=0, gpu_count=None)
    assert project.doit(CUDA_VISIBLE_DEVICES="0").returncode == 0
    assert seen(project, 0)[0] == "0"


def test_a_lease_lasts_until_the_last_worker_is_gone(project):
    gpus(project, "GPU-aaaa")
    jobs(project, 2, seconds=30)
    first = project.start("job:0")
    eventually(lambda: (project.root / "seen-0").exists(), 20)
    second = project.start("job:1")
    eventually(lambda: "waiting" in project.output(second), 20)
    first.kill()
    first.wait()
    eventually(lambda: (project.root / "seen-1").exists(), 20)
    assert not (project.root / "ended-0").exists()
    alive = [line for line in project.living().values() if "hold.py\x000" in line]
    assert not alive
    second.terminate()
    second.wait(20)


def test_workers_equal_leased_gpus(project, fake_python):
    gpus(project, "GPU-aaaa", "GPU-bbbb", "GPU-cccc")
    project.write(
        "train.py",
        """\
        import os, time
        rank = os.environ["RANK"]
        open("rank-" + rank, "w").write(os.environ["WORLD_SIZE"] + " " + os.environ["CUDA_VISIBLE_DEVICES"])
    """,
    )
    project.dodo(
        f'def task_t():\n    return gt.train("train.py", python={fake_python!r}, nproc_per_node=7, artifacts=["rank-0"])\n'
    )
    began = time.monotonic()
    result = project.doit()
    assert result.returncode == 0, result.stderr
    assert time.monotonic() - began < 30
    assert [(project.root / f"rank-{r}").read_text() for r in range(3)] == ["3 0,1,2"] * 3


def test_a_list_of_counts_is_tried_in_order(project):
    gpus(project, "GPU-aaaa", "GPU-bbbb", busy={"GPU-bbbb": 4242})
    jobs(project, 1, seconds=0, gpu_count=[4, 2, 1])
    assert project.doit().returncode == 0
    assert seen(project, 0)[0] == "0"
    gpus(project, "GPU-aaaa", "GPU-bbbb")
    project.doit("forget")
    assert project.doit().returncode == 0
    assert seen(project, 0)[0] == "0,1"
    jobs(project, 1, seconds=0, gpu_count=[8, 4])
    result = project.doit()
    assert result.returncode == 2
    assert "asked for 8 or 4, this machine shows 2" in result.stderr
