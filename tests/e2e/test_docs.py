"""What README.md and GUIDE.md show works: each Python and TOML block is run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(name: str, language: str) -> list[str]:
    return [text for lang, text in BLOCK.findall((HERE / name).read_text()) if lang == language]


@pytest.mark.parametrize("name", ["README.md", "GUIDE.md"])
def test_python_blocks(project, name):
    found = blocks(name, "python")
    assert found
    for script in ("examples/mnist/train.py", "train.py"):
        project.write(script, "print('hello')\n")
    for text in found:
        head = (
            ""
            if "DOIT_CONFIG" in text
            else "import gputasks as gt\nDOIT_CONFIG = gt.doit_config()\n"
        )
        project.write("dodo.py", head + text)
        result = project.doit("list")
        assert result.returncode == 0, f"{text}\n{result.stderr}"


def test_toml_blocks(project):
    text = "\n".join(blocks("GUIDE.md", "toml"))
    project.write("train.py", "print('hello')\n")
    project.write("gputasks.toml", text)
    project.dodo("""
        project = gt.load("gputasks.toml")
        def task_train():
            for name, run in project.runs.items():
                yield gt.train(run, name=name)
    """)
    result = project.doit("list", "--all")
    assert result.returncode == 0, result.stderr
    assert "train:large" in result.stdout


def test_two_commands_do_all_the_set_up():
    found = [b for b in blocks("README.md", "sh") if "-m venv" in b]
    assert len(found) == 2
    assert found[0].strip().endswith("doit train")
    assert found[1].strip().endswith("doit test")
    setup = found[1].strip().rpartition(" && ")[0]
    assert setup in found[0]
    script = (HERE / ".ci" / "run").read_text()
    for part in setup.removeprefix("python3 ").split(" && "):
        assert part in script, "CI does what README says"


def test_every_option_named_in_the_guide_exists():
    from gputasks.settings.runs import COMMAND_KEYS, TRAIN_KEYS

    table = (
        (HERE / "GUIDE.md").read_text().partition("| keyword | default |")[2].partition("\n\n")[0]
    )
    named = set(
        re.findall(r"`(\w+)`", "".join(row.split("|")[1] for row in table.splitlines()[2:]))
    )
    assert named == set(TRAIN_KEYS)
    assert set(COMMAND_KEYS) - {"shell"} <= set(TRAIN_KEYS)
