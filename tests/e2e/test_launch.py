"""What a worker gets, and how a failing one is told of; a torch that is only a launcher."""

from __future__ import annotations

import json
import os
import time

import pytest
from conftest import eventually

DUMP = """\
import json, os, sys
rank = os.environ["RANK"]
json.dump({"argv": sys.argv, "env": dict(os.environ), "params": json.load(open(os.environ["GPUTASKS_PARAMS"]))},
          open("seen-%s.json" % rank, "w"))
print("hello from", rank)
"""


def train(project, python, script, *, nproc=2, more=""):
    project.write("train.py", script)
    project.dodo(f"""
        def task_train():
            return gt.train("train.py", python={python!r}, nproc_per_node={nproc},
                            resources=gt.Resources(gpu_count=0), {more})
    """)


def test_contract_of_the_environment(project, fake_python):
    train(
        project,
        fake_python,
        DUMP,
        more='artifacts=["seen-0.json"], env={"MINE": "$HOME/a b;$(id) *~\\n\'\\""}',
    )
    leak = {
        "RANK": "7", "WORLD_SIZE": "64", "MASTER_PORT": "29500", "SLURM_NTASKS": "2", "SLURM_PROCID": "1",
        "SLURM_JOB_CPUS_PER_NODE": "64(x2)", "TORCHELASTIC_RUN_ID": "x", "KEPT": "it's (2) \n x",
    }  # fmt: skip
    result = project.doit(**leak)
    assert result.returncode == 0, result.stderr
    seen = [json.loads((project.root / f"seen-{r}.json").read_text()) for r in (0, 1)]
    for rank, one in enumerate(seen):
        env = one["env"]
        assert (env["RANK"], env["LOCAL_RANK"], env["WORLD_SIZE"], env["LOCAL_WORLD_SIZE"]) == (
            str(rank),
            str(rank),
            "2",
            "2",
        )
        assert env["MASTER_ADDR"] == "127.0.0.1"
        assert env["MASTER_PORT"] != "29500"
        assert not [k for k in env if k.startswith("SLURM_")]
        assert env["KEPT"] == leak["KEPT"]
        assert env["MINE"] == "$HOME/a b;$(id) *~\n'\""
        assert env["CUDA_VISIBLE_DEVICES"] == ""
        assert env["OMP_NUM_THREADS"] == str(max(1, len(os.sched_getaffinity(0)) // 2))
    log = next((project.root / ".gputasks/runs/train").glob("*/attempt-0/rank-1.log"))
    assert log.read_text() == "hello from 1\n"


def test_params_arrive_as_flags_and_typed(project, fake_python):
    odd = "a b'\"$X %s\n-é"
    params = {
        "lr": 1e-5,
        "n": 1,
        "name": odd,
        "none": None,
        "off": False,
        "on": True,
        "list": [1, 2.5, "x"],
    }
    train(
        project,
        fake_python,
        DUMP,
        more=f'params={params!r}, args=["--", "{{resume}}x", "%d"], artifacts=["seen-0.json"]',
    )
    result = project.doit()
    assert result.returncode == 0, result.stderr
    seen = json.loads((project.root / "seen-0.json").read_text())
    assert seen["params"] == params
    argv = seen["argv"]
    assert argv[0] == "train.py"
    assert argv[argv.index("--lr") + 1] == "1e-05"
    assert odd in argv or f"--name={odd}" in argv
    assert argv[-1] == "%d"


def test_params_styles(project, fake_python):
    train(
        project,
        fake_python,
        DUMP,
        more='params={"a.b": 1, "c": None}, params_style="key=value", artifacts=["seen-0.json"]',
    )
    assert project.doit().returncode == 0
    assert json.loads((project.root / "seen-0.json").read_text())["argv"][1:] == ["a.b=1", "c=null"]
    train(
        project,
        fake_python,
        DUMP,
        more='params={"a": 1}, params_style="none", artifacts=["seen-0.json"]',
    )
    assert project.doit().returncode == 0
    assert json.loads((project.root / "seen-0.json").read_text())["argv"][1:] == []


def failing(project, python, script, *, nproc=2, more=""):
    train(project, python, script, nproc=nproc, more=more)
    began = time.monotonic()
    result = project.doit()
    assert result.returncode == 1, result.stderr
    assert time.monotonic() - began < 30
    assert result.stderr.count("error: ") == 1, result.stderr
    record = next((project.root / ".gputasks/runs/train").glob("*/run.json"))
    return result.stderr, json.loads(record.read_text())["attempts"][-1]["failures"]


def test_rank_that_exits_with_a_code(project, fake_python):
    text, failures = failing(
        project,
        fake_python,
        """\
        import os, sys, time
        if os.environ["RANK"] == "1":
            print("the last words")
            sys.stdout.flush()
            os._exit(23)
        time.sleep(30)
    """,
    )
    assert "rank 1" in text
    assert "exited with code 23" in text
    assert "the last words" in text
    assert failures[0]["rank"] == 1
    assert failures[0]["exit_code"] == 23


def test_rank_killed_by_sigkill(project, fake_python):
    text, failures = failing(
        project,
        fake_python,
        """\
        import os, signal, time
        if os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(30)
    """,
    )
    assert "rank 1" in text
    assert "SIGKILL" in text
    assert "memory" in text
    assert failures[0]["exit_code"] == 137


def test_exception_names_the_users_line_and_consequences_come_after(project, fake_python):
    text, failures = failing(
        project,
        fake_python,
        """\
        import os, time
        def deep():
            raise ValueError("bad batch 17")
        if os.environ["RANK"] == "2":
            deep()
        time.sleep(0.3)
        raise RuntimeError("Connection closed by peer [127.0.0.1]:4242")
    """,
        nproc=4,
    )
    assert "rank 2" in text
    assert "ValueError: bad batch 17" in text
    assert "train.py:3" in text
    assert "first of 1 failure" in text
    assert failures[0]["rank"] == 2
    assert all(f["secondary"] for f in failures[1:])


def test_silent_rank_is_named_with_its_stack(project, fake_python):
    train(
        project,
        fake_python,
        """\
        import os, time
        def waits_for_ever():
            time.sleep(300)
        if os.environ["RANK"] == "1":
            waits_for_ever()
        while True:
            print("step", flush=True)
            time.sleep(0.2)
    """,
        more='stall_timeout="2s", stop_grace="1s"',
    )
    result = project.doit()
    assert result.returncode == 1, result.stderr
    assert "rank 1" in result.stderr
    assert "waits_for_ever" in result.stderr or "train.py:3" in result.stderr


def test_retries_continue_from_the_newest_checkpoint(project, fake_python):
    train(
        project,
        fake_python,
        """\
        import os, pickle, sys
        os.makedirs("ckpt", exist_ok=True)
        n = int(os.environ["GPUTASKS_ATTEMPT"])
        if n:
            assert pickle.load(open(sys.argv[2], "rb")) == n - 1
        pickle.dump(n, open("ckpt/last.ckpt", "wb"))
        sys.exit(0 if n == 2 else 5)
    """,
        nproc=1,
        more='args=["--ckpt", "{resume}"], retries=3, artifacts=["ckpt"]',
    )
    result = project.doit()
    assert result.returncode == 0, result.stderr
    record = json.loads(
        next((project.root / ".gputasks/runs/train").glob("*/run.json")).read_text()
    )
    assert [a["outcome"] for a in record["attempts"]] == ["failed", "failed", "succeeded"]


def test_script_that_cannot_run(project, fake_python):
    train(project, fake_python, "def broken(:\n")
    result = project.doit()
    assert result.returncode == 3, result.stderr
    assert "train.py" in result.stderr
    assert "Traceback" not in result.stderr
    train(project, fake_python, "import no_such_module_at_all\n")
    result = project.doit()
    assert result.returncode == 1
    assert "no_such_module_at_all" in result.stderr
    (project.root / "train.py").unlink()
    result = project.doit()
    assert result.returncode == 3
    assert "`train.py`" in result.stderr
    assert "Traceback" not in result.stderr


def test_python_without_torch(project, tmp_path):
    import venv

    venv.create(tmp_path / "bare", with_pip=False)
    train(project, str(tmp_path / "bare/bin/python"), DUMP)
    result = project.doit()
    assert result.returncode == 2
    assert "has no torch" in result.stderr


def test_non_utf8_output_in_the_c_locale(project, fake_python):
    train(
        project,
        fake_python,
        """\
        import os, sys
        print("\\u2713 caf\\u00e9")
        sys.stdout.flush()
        os.write(1, b"\\xff\\xfe raw\\n")
        open("made", "w").write("1")
    """,
        nproc=1,
        more='artifacts=["made"]',
    )
    result = project.doit(LC_ALL="C", LANG="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert result.returncode == 0, result.stderr
    log = next((project.root / ".gputasks/runs/train").glob("*/attempt-0/rank-0.log")).read_bytes()
    assert log == "✓ café\n".encode() + b"\xff\xfe raw\n"


def test_much_output_and_a_plain_pipe(project, fake_python):
    train(
        project,
        fake_python,
        """\
        import sys
        for _ in range(2000):
            sys.stdout.write("x" * 9999 + "\\n")
        open("made", "w").write("1")
    """,
        nproc=1,
        more='artifacts=["made"]',
    )
    result = project.doit(COLUMNS="20", TERM="dumb")
    assert result.returncode == 0, result.stderr
    assert "\x1b" not in result.stderr + result.stdout
    assert "\r" not in result.stderr + result.stdout
    log = next((project.root / ".gputasks/runs/train").glob("*/attempt-0/rank-0.log"))
    assert log.stat().st_size == 20_000_000


def test_project_path_with_odd_characters(project, fake_python):
    odd = project.root.parent / "my proj (v2)'s $HOME"
    project.root.rename(odd)
    project.root = odd
    train(project, fake_python, DUMP, more='artifacts=["seen-0.json"]')
    try:
        result = project.doit()
        assert result.returncode == 0, result.stderr
        assert (odd / "seen-1.json").exists()
    finally:
        odd.rename(odd.parent / "project")
        project.root = odd.parent / "project"


def test_progress_of_a_native_script_is_shown(project):
    project.write(
        "work.py",
        """\
        import gputasks as gt, time
        for step in range(5):
            gt.progress(step=step + 1, total=5, loss=1.0 / (step + 1))
            time.sleep(0.25)
        open("made", "w").write("1")
    """,
    )
    project.dodo(
        'def task_t():\n    return gt.command(["python", "work.py"], artifacts=["made"])\n'
    )
    result = project.doit(GPUTASKS_PROGRESS_S="0.1")
    assert result.returncode == 0, result.stderr
    assert "loss" in result.stderr
    assert "5/5" in result.stderr


def test_json_lines(project):
    project.dodo('def task_t():\n    return gt.command(["sh", "-c", "exit 4"])\n')
    result = project.doit(GPUTASKS_OUTPUT="json")
    assert result.returncode == 1
    events = [json.loads(line) for line in result.stdout.splitlines()]
    finished = next(e for e in events if e["kind"] == "finished")
    assert finished["outcome"] == "failed"
    assert finished["task"] == "t"
    failure = next(e for e in events if e["kind"] == "failure")
    assert failure["exit_code"] == 4


@pytest.mark.parametrize("bad", ["train.py", "data"])
def test_an_artifact_that_holds_inputs_is_refused(project, fake_python, bad):
    project.write("data/x", "1")
    train(project, fake_python, DUMP, more=f'file_dep=["data/x"], artifacts=[{bad!r}]')
    result = project.doit("list")
    assert result.returncode == 3
    assert "Traceback" not in result.stderr


def test_input_inside_an_artifact_of_another_task(project):
    project.dodo("""
        def task_make():
            return gt.command(["sh", "-c", "mkdir -p out; echo 1 > out/f"], artifacts=["out"])
        def task_use():
            return gt.command(["cp", "out/f", "g"], file_dep=["out/f"], artifacts=["g"])
    """)
    project.write("out/f", "old")
    result = project.doit("use")
    assert result.returncode == 3, result.stderr
    assert "`make`" in result.stderr
    assert 'file_dep=["out"]' in result.stderr
    assert not (project.root / "g").exists()


def test_two_trainings_at_once_use_different_ports(project, fake_python):
    project.write(
        "train.py",
        """\
        import os, time
        name = os.environ["NAME"]
        open("port-" + name, "w").write(os.environ["MASTER_PORT"])
        while not (os.path.exists("port-a") and os.path.exists("port-b")):
            time.sleep(0.05)
    """,
    )
    project.dodo(f"""
        def task_t():
            for name in "ab":
                yield gt.train("train.py", name=name, python={fake_python!r}, env={{"NAME": name}},
                               resources=gt.Resources(gpu_count=0), artifacts=["port-" + name])
    """)
    result = project.doit("-n", "2")
    assert result.returncode == 0, result.stderr
    eventually(lambda: (project.root / "port-b").exists(), 1)
    assert (project.root / "port-a").read_text() != (project.root / "port-b").read_text()


def test_secrets_reach_the_process_and_nothing_else(project, fake_python):
    train(
        project,
        fake_python,
        """\
        import os
        assert os.environ["KEY"] == "Bearer s3cr3t-value"
        open("made", "w").write("1")
        """,
        more='env={"KEY": "Bearer ${secrets.API_KEY}"}, artifacts=["made"]',
    )
    result = project.doit()
    assert result.returncode == 2
    assert "secret `API_KEY` has no value" in result.stderr
    assert not list((project.root / ".gputasks").rglob("attempt-*"))
    result = project.doit(API_KEY="s3cr3t-value")
    assert result.returncode == 0, result.stderr
    for path in (project.root / ".gputasks").rglob("*"):
        if path.is_file():
            assert b"s3cr3t-value" not in path.read_bytes(), path
    assert "up to date" in project.doit(API_KEY="another").stderr
