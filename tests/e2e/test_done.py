"""Done means done: exit code 0 alone is not believed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from conftest import eventually


def command(project, shell: str, artifacts, more: str = "") -> None:
    project.dodo(
        f"def task_t():\n    return gt.command({shell!r}, shell=True, artifacts={artifacts!r}, {more})\n"
    )


def failed(result, *texts: str, code: int = 1) -> None:
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    for text in texts:
        assert text in result.stderr, result.stderr
    assert result.stderr.count("error: ") == 1, result.stderr


def test_success_without_output_is_failure(project):
    project.dodo('def task_t():\n    return gt.command(["true"], artifacts=["x.bin"])\n')
    failed(project.doit(), "`x.bin` is missing")
    failed(project.doit(), "`x.bin` is missing")


def test_misspelt_output_is_named(project):
    command(project, "mkdir -p ckpt; echo 1 > ckpt/best_model.txt", ["ckpt/best.txt"])
    failed(project.doit(), "`ckpt/best.txt` is missing", "new files seen: `ckpt/best_model.txt`")


def test_half_written_output_is_kept_aside_and_the_consumer_refuses(project):
    project.dodo("""
        def task_make():
            return gt.command(["sh", "-c", "echo half > p.bin; exit 1"], artifacts=["p.bin"])
        def task_use():
            return gt.command(["cp", "p.bin", "used.bin"], file_dep=["p.bin"], artifacts=["used.bin"])
    """)
    assert project.doit("make").returncode == 1
    assert not (project.root / "p.bin").exists()
    kept = list((project.root / ".gputasks/runs/make").rglob("p.bin"))
    assert len(kept) == 1
    (project.root / "p.bin").write_text("half")
    result = project.doit("-s", "use")
    assert result.returncode == 2, result.stderr
    assert "`make` has not finished" in result.stderr
    assert not (project.root / "used.bin").exists()


def test_truncated_checkpoint_is_named(project):
    project.write(
        "make.py",
        """\
        import zipfile, os
        os.makedirs("ckpt", exist_ok=True)
        with zipfile.ZipFile("ckpt/last.ckpt", "w") as z:
            z.writestr("data", b"x" * 100000)
        os.truncate("ckpt/last.ckpt", 50000)
    """,
    )
    project.dodo(
        'def task_t():\n    return gt.command(["python", "make.py"], artifacts=["ckpt"])\n'
    )
    failed(project.doit(), "`ckpt/last.ckpt` is truncated")


def test_empty_folder_and_empty_file(project):
    command(project, "mkdir -p out", ["out"])
    failed(project.doit(), "`out` is an empty folder")
    command(project, ": > made", ["made"])
    failed(project.doit(), "`made` is empty")


def test_pipeline_failure_counts(project):
    command(project, "false | tee log.txt; true", [])
    assert project.doit().returncode == 0
    command(project, "false | tee log.txt", [])
    failed(project.doit(), "exited with code 1")


def test_exit_code_signal_and_last_lines_are_told(project):
    command(project, "for i in $(seq 30); do echo line $i; done; exit 17", [])
    result = project.doit()
    failed(result, "exited with code 17", "line 30", "line 12")
    assert "line 9\n" not in result.stderr
    assert ".gputasks/runs/t/" in result.stderr
    command(project, "kill -9 $$", [])
    failed(project.doit(), "SIGKILL")


def test_missing_program_and_missing_input(project):
    project.dodo('def task_t():\n    return gt.command(["no-such-program"], artifacts=["x"])\n')
    failed(project.doit(), "`no-such-program`", code=2)
    project.dodo(
        'def task_t():\n    return gt.command(["true"], file_dep=["none.txt"], artifacts=["x"])\n'
    )
    result = project.doit()
    assert result.returncode == 2
    assert "none.txt" in result.stderr
    assert "Traceback" not in result.stderr


def without_override(argv):
    """Root may write anywhere: drop that capability, as for a user."""
    if os.geteuid() != 0:
        return argv
    return ["setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override", *argv]


def test_folder_that_cannot_be_written(project):
    command(project, "echo 1 > ckpt/x", ["ckpt"])
    (project.root / "ckpt").mkdir()
    os.chmod(project.root / "ckpt", 0o555)
    try:
        result = project.run(*without_override([sys.executable, "-m", "doit"]))
    finally:
        os.chmod(project.root / "ckpt", 0o755)
    failed(result, "`ckpt` is not writable", code=2)


def test_read_only_state_folder(project):
    command(project, "echo 1 > x", ["x"])
    assert project.doit().returncode == 0
    state = project.root / ".gputasks"
    project.write("dodo.py", (project.root / "dodo.py").read_text().replace("echo 1", "echo 2"))
    for folder, _, _ in os.walk(state):
        os.chmod(folder, 0o555)
    try:
        result = project.run(*without_override([sys.executable, "-m", "doit"]))
        status = project.run(
            *without_override([sys.executable, "-m", "gputasks.cli.main", "status"])
        )
        listed = project.run(*without_override([sys.executable, "-m", "doit", "list", "-s"]))
    finally:
        for folder, _, _ in os.walk(state):
            os.chmod(folder, 0o755)
    assert result.returncode == 2, result.stderr
    assert "Traceback" not in result.stderr
    assert ".gputasks" in result.stderr
    assert (project.root / "x").read_text() == "1\n"
    assert status.returncode == 0
    assert "succeeded" in status.stdout
    assert listed.returncode == 0
    assert "R t" in listed.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a small disk")
def test_full_disk(project):
    state = project.root / ".gputasks"
    state.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(state)], check=True)
    try:
        project.dodo("""
            def task_first():
                return gt.command(["sh", "-c", "echo 1 > first"], artifacts=["first"])
            def task_loud():
                return gt.command(["sh", "-c", "head -c 3000000 /dev/zero; echo 1 > loud"],
                                  file_dep=["first"], artifacts=["loud"])
        """)
        result = project.doit("loud")
        assert result.returncode in (1, 2), result.stderr
        assert "no space" in result.stderr.lower(), result.stderr
        assert "Traceback" not in result.stderr
        for path in (state / "runs/loud").rglob("output.log"):
            path.unlink()
        again = project.doit("first")
        assert again.returncode == 0, again.stderr
        assert "up to date" in again.stderr
    finally:
        subprocess.run(["umount", str(state)], check=True)


def test_sigterm_to_the_workers_is_no_success(project, fake_python):
    project.write(
        "train.py",
        """\
        import os, signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        os.makedirs("ckpt", exist_ok=True)
        open("ckpt/x", "w").write("1")
        open("ready", "w").write(str(os.getpid()))
        time.sleep(60)
    """,
    )
    project.dodo(
        f'def task_t():\n    return gt.train("train.py", python={fake_python!r}, artifacts=["ckpt"], resources=gt.Resources(gpu_count=0))\n'
    )
    process = project.start()
    eventually(
        lambda: (project.root / "ready").exists() and (project.root / "ready").read_text(), 20
    )
    time.sleep(0.1)
    os.kill(int((project.root / "ready").read_text()), signal.SIGTERM)
    assert process.wait(30) == 1
    assert "interrupted" in project.output(process)
    assert project.doit("list", "-s").stdout.startswith("R t")


def test_max_duration(project):
    project.dodo(
        'def task_t():\n    return gt.command(["sh", "-c", "trap \\"\\" TERM; sleep 60 & sleep 60; sleep 60"], max_duration="1s", stop_grace="1s")\n'
    )
    began = time.monotonic()
    result = project.doit()
    assert time.monotonic() - began < 15
    failed(result, "timed out")
    project.gone()


def test_an_artifact_that_shows_late_is_waited_for(project):
    """Case B53: on NFS what another machine wrote may take seconds to be seen."""
    project.env["GPUTASKS_ARTIFACT_WAIT_S"] = "20"
    project.dodo("""
        def task_make():
            return gt.command(["sh", "-c", "touch ended"], artifacts=["late.txt"])
    """)
    running = project.start()
    deadline = time.monotonic() + 20
    while "waiting up to 20 s for it" not in project.output(running):
        assert time.monotonic() < deadline, project.output(running)
        time.sleep(0.05)
    project.write("late.txt", "here")
    assert running.wait(20) == 0, project.output(running)


def test_an_artifact_that_never_shows_is_not_waited_for_without_end(project):
    project.dodo("""
        def task_make():
            return gt.command(["true"], artifacts=["never.txt"])
    """)
    result = project.doit()
    assert result.returncode == 1
    assert "declared `never.txt` is missing" in result.stderr
