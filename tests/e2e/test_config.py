"""A faulty dodo.py or TOML: every fault at once, the nearest name, exit code 3, nothing started."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parents[2]


def refused(result, *texts: str) -> None:
    assert result.returncode == 3, result.stderr
    assert "Traceback" not in result.stderr
    for text in texts:
        assert text in result.stderr, result.stderr


@pytest.mark.parametrize(("call", "texts"), [
    ('gt.train("train.py", artefacts=["x"], max_durration="2h")', ["did you mean `artifacts`?", "did you mean `max_duration`?"]),
    ('gt.train("train.py", "more")', ["one positional argument"]),
    ('gt.train("trian.py")', ["`trian.py`", "train.py"]),
    ('gt.train("train.py", image="x")', ["`image=`"]),
    ('gt.train("train.py", nodes=2)', ["`nodes=`"]),
    ('gt.train("train.py", launcher="slurm")', ["`launcher="]),
    ('gt.train("train.py", resources=gt.Resources(gpu=4))', ["did you mean `gpu_count`?"]),
    ('gt.train("train.py", resources=gt.Resources(gpu_count=True, memory="16G"))', ["`gpu_count`", "16GiB"]),
    ('gt.train("train.py", env={"RANK": "1", "A-B": "x"})', ["`RANK`", "A-B"]),
    ('gt.train("train.py", params={"accumulate_grad_batches": 0, "strategy": "dp"})', ["must be 1 or more", "`ddp`"]),
    ("gt.command([])", ["empty"]),
    ('gt.command("echo hi")', ["shell=True"]),
    ('gt.command(["true"], on_success="x")', ["hook"]),
    ('gt.command(["true"], artifacts=["../x", "."])', ["`../x`"]),
    ('gt.trian("train.py")', ["`train`"]),
])  # fmt: skip
def test_calls(project, call, texts):
    project.write("train.py", "print(1)\n")
    project.dodo(f"""
        def task_other():
            return gt.command(["touch", "started"])
        def task_t():
            return {call}
    """)
    result = project.doit()
    if "trian(" in call:  # an AttributeError of Python's, in the user's own code
        assert result.returncode == 3
        assert "did you mean `train`?" in result.stderr
    else:
        refused(result, *texts)
    assert not (project.root / "started").exists()


def test_options_of_doit_config(project):
    project.write(
        "dodo.py",
        "import gputasks as gt\nDOIT_CONFIG = gt.doit_config(defualt_tasks=[], backend='json')\n",
    )
    refused(project.doit(), "did you mean `default_tasks`?", "`backend`")


def test_a_resources_call_before_anything_else(project):
    project.write(
        "dodo.py",
        "import gputasks as gt\nR = gt.Resources(gpus=1)\nDOIT_CONFIG = gt.doit_config()\n",
    )
    refused(project.doit(), "did you mean `gpu_count`?")


def test_tool_doit_of_pyproject(project):
    project.dodo('def task_t():\n    return gt.command(["true"])\n')
    project.write("pyproject.toml", "[tool.doit]\nverbosty = 2\n")
    refused(project.doit(), "`verbosty`", "did you mean `verbosity`?", "pyproject.toml:2")
    project.write("pyproject.toml", '[tool.doit]\nverbosity = 2\n[tool.doit.tasks."t"]\n')
    assert project.doit().returncode == 0


@pytest.mark.parametrize(("text", "texts"), [
    ("[runs.a]\nscript = 'train.py'\nlerning = 1\n[runs.b]\nscript = 'none.py'\n", ["gputasks.toml:3", "`lerning`", "`none.py`"]),
    ("[rns.a]\n", ["`rns`", "`runs`", "gputasks.toml:1"]),
    ("[runs.a]\nscript = 'train.py'\n[runs.a]\n", ["gputasks.toml:3"]),
    ("[runs.a\n", ["gputasks.toml:1"]),
    ("[runs.a]\nscript = 'train.py'\nresources = { gpu_count = 1.5 }\n", ["`gpu_count`", "gputasks.toml:3"]),
])  # fmt: skip
def test_toml(project, text, texts):
    project.write("train.py", "print(1)\n")
    project.write("gputasks.toml", text)
    project.dodo('p = gt.load("gputasks.toml")\ndef task_t():\n    return gt.train(p.runs["a"])\n')
    refused(project.doit(), *texts)


def test_bom_and_newer_syntax_are_read(project):
    project.write("train.py", "print(1)\n")
    project.write(
        "gputasks.toml", "\ufeff[runs.a]\nscript = 'train.py'\nparams = { lr = 1e-5,\n  n = 1, }\n"
    )
    project.dodo("""
        p = gt.load("gputasks.toml")
        assert p.runs["a"].params == {"lr": 1e-5, "n": 1}
        def task_t():
            return gt.train(p.runs["a"])
    """)
    result = project.doit("list")
    assert result.returncode == 0, result.stderr


def test_keyword_and_table_are_equal(project):
    project.write("train.py", "print(1)\n")
    project.write(
        "pyproject.toml",
        """\
        [tool.gputasks.runs.large]
        script = "train.py"
        params = { lr = 0.1, layers = [1, 2], name = "x" }
        artifacts = [{ name = "model", path = "ckpt" }]
        file_dep = ["./data/"]
        nproc_per_node = 2
        max_duration = "2h"
        resources = { gpu_count = 0, memory = "4GB" }
        env = { A = "1" }
    """,
    )
    project.dodo("""
        from gputasks.settings.runs import train_run
        p = gt.load()
        q = train_run("train.py", (), dict(params={"lr": 0.1, "layers": [1, 2], "name": "x"},
            artifacts=[gt.Artifact("model", "ckpt")], file_dep=["data"], nproc_per_node=2, max_duration="2h",
            resources=gt.Resources(gpu_count=0, memory="4GB"), env={"A": "1"}))
        assert p.runs["large"] == q, (p.runs["large"], q)
        def task_t():
            yield gt.train(p.runs["large"], name="large")
    """)
    result = project.doit("list", "--all")
    assert result.returncode == 0, result.stderr
    assert "t:large" in result.stdout


def test_every_command_named_in_a_message_exists():
    from gputasks.cli.main import _parser

    usage = _parser().format_help()
    known = set(re.findall(r"^    (\w+)", usage, re.MULTILINE))
    named = set()
    for path in (HERE / "gputasks").rglob("*.py"):
        named |= set(re.findall(r"`gputasks (\w+)", path.read_text()))
    assert named
    assert named <= known, named - known


def test_artifacts_of_two_tasks_inside_each_other(project):
    project.dodo("""
        def task_a():
            return gt.command(["mkdir", "out"], artifacts=["out"])
        def task_b():
            return gt.command(["mkdir", "out/b"], artifacts=["out/b"])
    """)
    refused(project.doit(), "`out/b` of `b` lies inside `out` of `a`")


def test_a_misspelt_name_is_one_message_with_its_place(project):
    project.write(
        "dodo.py", "import gputasks as gt\n\ndef task_a():\n    return gt.trian('x.py')\n"
    )
    for result in (project.doit(), project.gputasks("why", "a")):
        assert result.returncode == 3
        said = result.stderr + result.stdout
        assert "module `gputasks` has no `trian`" in said
        assert "dodo.py:4" in said
        assert "did you mean `train`?" in said
        assert "Traceback" not in said
