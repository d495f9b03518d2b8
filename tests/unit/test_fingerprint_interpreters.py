"""Which Python, which packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv

import pytest

from gputasks.errors import ConfigError
from gputasks.fingerprint import Digests, interpreter, interpreters
from gputasks.layout import Layout


@pytest.fixture(autouse=True)
def forgetful():
    interpreters._asked.clear()
    interpreters._scanned.clear()


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """A virtual environment without packages."""
    folder = tmp_path_factory.mktemp("venv") / "env"
    venv.create(folder, symlinks=True, with_pip=False)
    (site,) = folder.glob("lib/python*/site-packages")
    return folder / "bin" / "python", site


@pytest.fixture
def asked(monkeypatch):
    """Interpreters that were started."""
    import gputasks.proc

    started = []
    original = gputasks.proc.run_text
    monkeypatch.setattr(
        gputasks.proc, "run_text", lambda argv, **k: started.append(argv[0]) or original(argv, **k)
    )
    return started


def test_the_running_one():
    found = interpreter()
    assert found.executable == sys.executable
    assert found.version == sys.version.split()[0]
    assert found.implementation == "CPython"
    assert "hypothesis" in found.packages
    assert not {"gputasks", "doit", "rich", "pip", "pytest", "blake3"} & found.packages.keys()
    assert interpreter(sys.executable) == found


def test_names_and_versions(tmp_path, monkeypatch):
    site = tmp_path / "site-packages"
    second = tmp_path / "x" / "dist-packages"
    for name in (
        "torch-2.13.0+cpu.dist-info", "Foo.Bar_baz-1.0.dist-info", "~orch-2.0.dist-info",
        "old-0.1-py3.11.egg-info", "torch", "typing_extensions-4.1.dist-info", "pip-24.0.dist-info",
    ):  # fmt: skip
        (site / name).mkdir(parents=True)
    (second / "torch-1.0.dist-info").mkdir(parents=True)
    (second / "numpy-2.0.dist-info").mkdir(parents=True)
    (second / "plain.egg-info").write_text("")
    monkeypatch.setattr(sys, "path", ["", str(site), str(second), str(tmp_path), str(site)])
    found = interpreter()
    assert found.packages == {
        "torch": "2.13.0+cpu", "foo-bar-baz": "1.0", "old": "0.1", "typing-extensions": "4.1",
        "numpy": "2.0", "plain": "",
    }  # fmt: skip
    assert found.site_dirs == (str(site), str(second))
    os.rename(site / "torch-2.13.0+cpu.dist-info", site / "torch-2.14.0.dist-info")
    assert interpreter().packages["torch"] == "2.14.0"


def test_editable_installations(tmp_path, monkeypatch):
    site = tmp_path / "site-packages"
    site.mkdir()
    (tmp_path / "src").mkdir()
    (site / "inner").mkdir()
    (site / "_mine.pth").write_text(
        f"{tmp_path}/src\n# note\nimport os\n\n{tmp_path}/gone\ninner\n"
    )
    monkeypatch.setattr(sys, "path", [str(site)])
    assert interpreter().source_dirs == (str(tmp_path / "src"),)


def test_another_one(other, asked):
    python, site = other
    found = interpreter(str(python))
    assert found.executable == str(python), "the link makes it a virtual environment"
    assert found.version == sys.version.split()[0]
    assert found.packages == {}
    assert found.site_dirs == (str(site),)
    (site / "numpy-2.0.dist-info").mkdir()
    assert interpreter(str(python)).packages == {"numpy": "2.0"}
    (site / "numpy-2.0.dist-info").rmdir()
    assert asked == [str(python)]


def test_it_is_asked_once(other, asked, tmp_path):
    python, _ = other
    digests = Digests(Layout(str(tmp_path)))
    first = interpreter(str(python), digests=digests)
    digests.save()
    interpreters._asked.clear()
    assert interpreter(str(python), digests=Digests(Layout(str(tmp_path)))) == first
    assert asked == [str(python)]
    interpreters._asked.clear()
    config = python.parent.parent / "pyvenv.cfg"
    os.utime(config, (1, 1))
    assert interpreter(str(python), digests=Digests(Layout(str(tmp_path)))) == first
    assert len(asked) == 2


def test_a_shim_is_asked_each_time(other, asked, tmp_path):
    shim = tmp_path / "python"
    shim.write_text(f'#!/bin/sh\nexec {other[0]} "$@"\n')
    shim.chmod(0o755)
    interpreter(str(shim))
    interpreter(str(shim))
    assert asked == [str(shim)] * 2


def test_names_are_looked_up_in_path_and_paths_from_the_root(other, asked, tmp_path, monkeypatch):
    python, _ = other
    monkeypatch.setenv("PATH", f"{tmp_path}/none:{python.parent}:/usr/bin:/bin")
    assert interpreter("python").executable == str(python)
    os.symlink(python.parent.parent, tmp_path / ".venv")
    digests = Digests(Layout(str(tmp_path)))
    found = interpreter(".venv/bin/python", digests=digests)
    assert found.executable == str(tmp_path / ".venv/bin/python")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere/python", "interpreter `nowhere/python` is not there"),
        ("no-such-python", "interpreter `no-such-python` is not there"),
        ("/etc/passwd", "interpreter `/etc/passwd` cannot be executed"),
        ("/usr", "interpreter `/usr` cannot be executed"),
        (shutil.which("true"), f"`{shutil.which('true')}` is no Python interpreter"),
        (shutil.which("false"), f"`{shutil.which('false')}` is no Python interpreter"),
        (shutil.which("echo"), f"`{shutil.which('echo')}` is no Python interpreter"),
    ],
)
def test_what_is_none(name, message):
    with pytest.raises(ConfigError) as caught:
        interpreter(name)
    assert caught.value.message == message


def test_a_program_that_cannot_start(tmp_path):
    (tmp_path / "python").write_bytes(b"\x7fELF garbage")
    (tmp_path / "python").chmod(0o755)
    with pytest.raises(ConfigError, match="is no Python interpreter"):
        interpreter(str(tmp_path / "python"))


def test_looking_is_cheap():
    program = """
import time
from gputasks.fingerprint import interpreter
interpreter()
start = time.perf_counter()
for _ in range(100):
    interpreter()
print((time.perf_counter() - start) / 100)
"""
    best = min(
        float(
            subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout
        )
        for _ in range(3)
    )
    assert best < 0.005
