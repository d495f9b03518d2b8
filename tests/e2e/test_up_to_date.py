"""Up to date means it: what reruns, what does not, and the reason that is told."""

from __future__ import annotations

import json
import os
import time

COPY = """
def task_copy():
    return gt.command(["cp", "in.txt", "out.txt"], file_dep=["in.txt"], artifacts=["out.txt"])
"""

TRAIN = """
def task_train():
    return gt.train("train.py", python={python!r}, params={params!r}, nproc_per_node=1,
                    file_dep=["data"], artifacts=["ckpt"], resources=gt.Resources(gpu_count=0), {more})
"""

SCRIPT = """\
import os, time, helper
os.makedirs("ckpt", exist_ok=True)
if os.environ["RANK"] == "0":
    open("ckpt/last.txt", "w").write("weights")
time.sleep(float(os.environ.get("SLEEP", "0")))
"""


def training(project, python, params=None, more=""):
    project.dodo(TRAIN.format(python=python, params=params or {"lr": 0.001}, more=more))
    project.write("train.py", SCRIPT)
    project.write("helper.py", "x = 1\n")
    project.write("data/a/b/c.txt", "1\n")
    project.write("data/d.txt", "2\n")


def ran(result) -> bool:
    assert result.returncode == 0, result.stderr + result.stdout
    assert "Traceback" not in result.stderr
    text = result.stderr + result.stdout
    made = "succeeded" in text or "restored from the cache" in text
    assert ("up to date" in text) != made, text
    return made


def test_second_run_is_skipped_and_touching_changes_nothing(project):
    project.dodo(COPY)
    project.write("in.txt", "one")
    assert ran(project.doit())
    assert not ran(project.doit())
    for name in ("in.txt", "out.txt"):
        os.utime(project.root / name, (1, 1))
        os.utime(project.root / name, (time.time() + 3600,) * 2)
    assert not ran(project.doit())
    assert not ran(project.doit())


def test_same_mtime_other_content_is_noticed(project):
    project.dodo(COPY)
    path = project.write("in.txt", "one")
    os.utime(path, (1000000000, 1000000000))
    assert ran(project.doit())
    path.write_text("two")
    os.utime(path, (1000000000, 1000000000))
    result = project.doit()
    assert ran(result)
    assert "in.txt changed" in result.stderr
    assert (project.root / "out.txt").read_text() == "two"


def test_input_edited_while_the_task_runs(project):
    project.dodo("""
        def task_slow():
            return gt.command(["sh", "-c", "cat in.txt > out.txt; touch started; sleep 1"],
                              file_dep=["in.txt"], artifacts=["out.txt"])
    """)
    path = project.write("in.txt", "old")
    process = project.start()
    while not (project.root / "started").exists():
        time.sleep(0.02)
    path.write_text("new")
    assert process.wait(30) == 0
    assert "in.txt changed during the run" in project.output(process)
    assert ran(project.doit())
    assert (project.root / "out.txt").read_text() == "new"
    assert not ran(project.doit())


def test_command_that_changes_its_own_input(project):
    project.dodo("""
        def task_self():
            return gt.command(["sh", "-c", "echo x >> in.txt; cp in.txt out.txt"],
                              file_dep=["in.txt"], artifacts=["out.txt"])
    """)
    project.write("in.txt", "x\n")
    first = project.doit()
    assert ran(first)
    assert "in.txt changed during the run" in first.stderr
    assert "R self" in project.doit("list", "-s").stdout
    assert ran(project.doit())


def test_each_change_of_a_training_is_told(project, fake_python):
    training(project, fake_python)
    assert ran(project.doit())
    assert not ran(project.doit())

    training(project, fake_python, {"lr": 0.01})
    result = project.doit()
    assert ran(result)
    assert "lr: 0.001 -> 0.01" in result.stderr

    project.write("helper.py", "x = 2\n")
    result = project.doit()
    assert ran(result)
    assert "helper.py changed" in result.stderr

    project.write("data/a/b/c.txt", "changed")
    result = project.doit()
    assert ran(result)
    assert "data/a/b/c.txt" in result.stderr

    (project.root / "data/new.txt").write_text("n")
    result = project.doit()
    assert ran(result)
    assert "data/new.txt" in result.stderr

    os.rename(project.root / "data/new.txt", project.root / "data/newer.txt")
    result = project.doit()
    assert ran(result)
    assert "newer.txt" in result.stderr

    os.unlink(project.root / "data/newer.txt")
    assert ran(project.doit())
    assert not ran(project.doit())


def test_types_of_params_are_told_apart(project, fake_python):
    for value in (1, 1.0, "1", True):
        training(project, fake_python, {"n": value})
        assert ran(project.doit()), value
        assert not ran(project.doit()), value
    training(project, fake_python, {"lr": 1e-5})
    assert ran(project.doit())
    training(project, fake_python, {"lr": 0.00001})
    assert not ran(project.doit())


def test_packages_of_the_interpreter_are_inputs(project, fake_python):
    training(project, fake_python)
    assert ran(project.doit())
    site = next(
        iter(
            os.path.join(r, n)
            for r, d, _ in os.walk(os.path.dirname(os.path.dirname(fake_python)))
            for n in d
            if n == "site-packages"
        )
    )
    os.makedirs(os.path.join(site, "newcomer-1.5.dist-info"))
    try:
        result = project.doit()
        assert ran(result)
        assert "newcomer" in result.stderr
    finally:
        os.rmdir(os.path.join(site, "newcomer-1.5.dist-info"))


def test_declared_environment_is_an_input_and_the_shell_is_not(project, fake_python):
    training(project, fake_python, more='env={"MODE": "a"}')
    assert ran(project.doit())
    assert not ran(project.doit(UNRELATED="1"))
    training(project, fake_python, more='env={"MODE": "b"}')
    result = project.doit()
    assert ran(result)
    assert 'env MODE: "a" -> "b"' in result.stderr


def test_limits_are_no_inputs(project, fake_python):
    training(project, fake_python)
    assert ran(project.doit())
    training(project, fake_python, more='max_duration="3h", retries=2, stop_grace="5s"')
    assert not ran(project.doit())


def test_only_the_command_line_changed(project):
    text = 'def task_c():\n    return gt.command(["cp", {}"in.txt", "out.txt"], file_dep=["in.txt"], artifacts=["out.txt"])\n'
    project.write("in.txt", "x")
    project.dodo(text.format(""))
    assert ran(project.doit())
    project.dodo(text.format('"-f", '))
    result = project.doit()
    assert ran(result)
    assert "command changed" in result.stderr
    assert "-f" in result.stderr


def test_damaged_and_missing_artifacts_are_noticed(project):
    project.dodo(COPY)
    project.write("in.txt", "content")
    assert ran(project.doit())
    out = project.root / "out.txt"
    info = out.stat()
    out.write_text("cOntent")
    os.utime(out, ns=(info.st_atime_ns, info.st_mtime_ns))
    result = project.doit()
    assert ran(result)
    assert "out.txt changed since it was built" in result.stderr
    assert out.read_text() == "content"
    out.unlink()
    result = project.doit()
    assert ran(result)
    assert "out.txt is missing" in result.stderr


def test_a_target_that_was_never_built_here_runs_once(project):
    project.dodo(COPY)
    project.write("in.txt", "mine")
    project.write("out.txt", "foreign")
    result = project.doit()
    assert ran(result)
    assert "never built here" in result.stderr
    kept = [p for p in (project.root / ".gputasks/trash").rglob("out.txt")]
    assert [p.read_text() for p in kept] == ["foreign"]
    assert not ran(project.doit())


def test_targets_without_inputs_are_skipped(project):
    project.dodo(
        'def task_t():\n    return gt.command(["touch", "x", "made"], artifacts=["made"])\n'
    )
    project.write("x", "")
    # An empty file is not a finished artifact.
    assert project.doit().returncode == 1
    project.dodo(
        'def task_t():\n    return gt.command(["sh", "-c", "echo 1 > made"], artifacts=["made"])\n'
    )
    assert ran(project.doit())
    assert not ran(project.doit())


def test_a_command_without_inputs_and_outputs_always_runs(project):
    project.dodo('def task_t():\n    return gt.command(["sh", "-c", "echo 1 >> count"])\n')
    assert ran(project.doit())
    assert ran(project.doit())
    assert (project.root / "count").read_text() == "1\n1\n"


def test_same_output_from_upstream_skips_downstream(project):
    project.dodo("""
        def task_prep():
            return gt.command(["python", "prep.py"], artifacts=["data"])
        def task_use():
            return gt.command(["sh", "-c", "cat data/x > used"], file_dep=["data"], artifacts=["used"])
    """)
    prep = "import os\nos.makedirs('data', exist_ok=True)\nopen('data/x', 'w').write('1')\n"
    project.write("prep.py", prep)
    result = project.doit()
    assert result.returncode == 0, result.stderr
    project.write("prep.py", "# a comment\n" + prep)
    result = project.doit()
    assert result.returncode == 0
    assert "prep.py changed" in result.stderr
    assert "use (up to date)" in result.stderr


def test_linked_folder_of_inputs(project):
    project.dodo(
        'def task_t():\n    return gt.command(["sh", "-c", "cat data/x > out"], file_dep=["data"], artifacts=["out"])\n'
    )
    project.write("disk1/x", "1")
    project.write("disk2/x", "2")
    link = project.root / "data"
    link.symlink_to("disk1")
    assert ran(project.doit())
    assert not ran(project.doit())
    link.unlink()
    link.symlink_to("disk2")
    assert ran(project.doit())
    assert (project.root / "out").read_text() == "2"


def test_forget_always_ignore_and_info(project):
    project.dodo(COPY)
    project.write("in.txt", "1")
    assert ran(project.doit())
    assert project.doit("info", "copy").returncode == 0
    assert project.doit("forget", "copy").returncode == 0
    result = project.doit()
    assert ran(result)
    assert ran(project.doit("-a"))
    assert not ran(project.doit())
    project.write("in.txt", "2")
    info = project.doit("info", "copy")
    assert info.returncode == 1
    assert "in.txt changed" in info.stdout
    project.doit("ignore", "copy")
    assert project.doit().returncode == 0
    assert (project.root / "out.txt").read_text() == "1"


def test_clean_removes_artifacts_and_receipt(project):
    project.dodo(COPY)
    project.write("in.txt", "1")
    assert ran(project.doit())
    result = project.doit("clean", "-n", "copy")
    assert (project.root / "out.txt").exists()
    result = project.doit("clean", "copy")
    assert "out.txt" in result.stdout
    assert not (project.root / "out.txt").exists()
    assert ran(project.doit())


def test_why_tells_causes_as_text_and_data(project):
    project.dodo(COPY)
    project.write("in.txt", "1")
    assert "never built here" in project.gputasks("why", "copy").stdout
    assert ran(project.doit())
    assert project.gputasks("why", "copy").stdout == "copy: up to date\n"
    project.write("in.txt", "2")
    (cause,) = json.loads(project.gputasks("why", "copy", "--json").stdout)["causes"]
    assert cause["kind"] == "file"
    assert cause["name"] == "in.txt"
    assert cause["old"] != cause["new"]
    wrong = project.gputasks("why", "copi")
    assert wrong.returncode == 3
    assert "did you mean `copy`?" in wrong.stderr


def test_names_with_spaces_and_brackets(project):
    project.dodo("""
        def task_t():
            return gt.command(["cp", "in (1) it's.txt", "out [x] %s.txt"],
                              file_dep=["in (1) it's.txt"], artifacts=["out [x] %s.txt"])
    """)
    project.write("in (1) it's.txt", "1")
    assert ran(project.doit())
    assert not ran(project.doit())


def test_plain_doit_tasks_beside_ours(project):
    project.dodo("""
        def task_make():
            return {"actions": ["echo plain > plain.txt"], "targets": ["plain.txt"], "uptodate": [True]}
        def task_t():
            return gt.command(["cp", "plain.txt", "ours.txt"], file_dep=["plain.txt"], artifacts=["ours.txt"])
        def task_after():
            return {"actions": ["cp ours.txt last.txt"], "file_dep": ["ours.txt"], "targets": ["last.txt"]}
    """)
    result = project.doit("after")
    assert result.returncode == 0, result.stderr
    assert (project.root / "last.txt").read_text() == "plain\n"
    again = project.doit("after")
    assert again.returncode == 0
    assert again.stderr.count("up to date") == 3, again.stderr


def test_state_folder_never_counts_as_input(project):
    project.dodo(
        'def task_t():\n    return gt.command(["sh", "-c", "ls > ../out.txt; cp ../out.txt out.txt"], cwd="sub", file_dep=["sub"], artifacts=["out.txt"])\n'
    )
    project.write("sub/.gputasks/x", "1")
    project.write("sub/y", "1")
    result = project.doit()
    assert result.returncode in (0, 1)
    project.write("sub/.gputasks/x", "2")
    assert "changed" not in project.gputasks("why", "t").stdout
