"""Lines of requirements, files that name files, keys, what may be removed."""

from __future__ import annotations

import fcntl
import json
import os
import sys
from pathlib import Path

import pytest

from gputasks import environments
from gputasks.checks.requirements import LineError, parse_line, split_index
from gputasks.environments import bases, requirements
from gputasks.environments.credentials import Credentials
from gputasks.errors import ConfigError, MachineError, ManyErrors
from gputasks.fingerprint import Digests
from gputasks.layout import Layout, write_json
from gputasks.receipts.compare import compare
from gputasks.run.record import inputs_digest
from gputasks.settings.runs import command_run
from gputasks.specs import Run


@pytest.mark.parametrize(("text", "normal", "pinned"), [
    ("Torch == 2.13.0", "torch==2.13.0", True),
    ("torch==2.13.*", "torch==2.13.*", False),
    ("torch === 2.13.0+cpu", "torch===2.13.0+cpu", True),
    ("Foo.Bar_baz[b, a] >=1 , <2 ; python_version  <  '3.12'  # why", "foo-bar-baz[a,b]<2,>=1; python_version < '3.12'", False),
    ("einops", "einops", False),
    ("einops (>=0.8)", "einops>=0.8", False),
    ("a==1 --hash=sha256:bb --hash sha256:aa", "a==1 --hash=sha256:aa --hash=sha256:bb", True),
    ("./pkg/", "./pkg", True),
    ("wheels/a-1-py3-none-any.whl", "wheels/a-1-py3-none-any.whl", True),
    ("-e pkg[dev]", "-e ./pkg[dev]", True),
    ("--editable=.", "-e .", True),
    ("a @ file:///x/a-1-py3-none-any.whl", "a @ /x/a-1-py3-none-any.whl", True),
    ("git+https://github.com/a/b@main", "git+https://github.com/a/b@main", False),
    (f"b @ git+https://github.com/a/b@{'0a' * 20}", f"b @ git+https://github.com/a/b@{'0a' * 20}", True),
    ("https://host/a-1.whl#sha256=ab", "https://host/a-1.whl#sha256=ab", True),
    ("-ihttps://host/simple", "--index-url https://host/simple", False),
    ("--extra-index-url  https://u:${secrets.T}@host/simple", "--extra-index-url https://u:${secrets.T}@host/simple", False),
    ("--pre", "--pre", False),
    ("-r  base.txt", "-r base.txt", False),
])  # fmt: skip
def test_normal_forms(text, normal, pinned):
    line = parse_line(text)
    assert (line.text, line.pinned) == (normal, pinned)
    assert parse_line(line.text).text == normal


@pytest.mark.parametrize(("text", "said", "hint"), [
    ("torch=2.13.0", "`torch=2.13.0` is no requirement", "torch==2.13.0"),
    ("torch 2.13", "`torch 2.13` is no requirement", "torch==2.13"),
    ("--find-link x", "option `--find-link` is not known here", "--find-links"),
    ("--index-url", "`--index-url` needs a value", ""),
    ("-r https://host/r.txt", "cannot be compared", "download"),
    ("torch==${secrets.V}", "a secret can stand only in the URL of an index", "--index-url"),
    ("--index-url https://host/${secrets.T}/simple", "only in the user part", "--index-url"),
    ("--index-url https://${secrets.my-key}@host/simple", "only in the user part", "--index-url"),
    ("git+https://${secrets.T}@host/x", "only in the URL of an index", ""),
    ("a==1 --index-url https://host", "cannot stand behind a requirement", ""),
    ("!!", "`!!` is no requirement", ""),
])  # fmt: skip
def test_lines_that_are_none(text, said, hint):
    with pytest.raises(LineError) as caught:
        parse_line(text)
    assert said in str(caught.value)
    assert hint in caught.value.hint


def test_what_is_no_line():
    assert parse_line("  # only a word") is None
    assert parse_line("") is None
    assert split_index("https://u:${secrets.T}@h:8080/s") == (
        "https://h:8080/s",
        "u",
        "${secrets.T}",
    )


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(*lines: str, **more):
    run = Run(kind="command", argv=("true",), requirements=lines, **more)
    return requirements.read(run, Digests(Layout(os.getcwd())))


def test_nested_files(here):
    (here / "deep").mkdir()
    (here / "all.txt").write_text(
        "-r deep/base.txt\nnumpy>=2\n--find-links wheels\n-c limits.txt\n"
    )
    (here / "deep/base.txt").write_text(
        "# basics\nTorch==2.13.0 \\\n  --hash=sha256:aa\n-r ../all.txt\n--find-links near\n"
    )
    (here / "deep/near").mkdir()
    (here / "limits.txt").write_text("numpy==2.3.1\n")
    found = read("-r all.txt")
    assert found.lines == (
        "--find-links near", "--find-links wheels", "-c numpy==2.3.1", "numpy>=2", "torch==2.13.0 --hash=sha256:aa",
    )  # fmt: skip
    assert found.pinned, "the constraint leaves numpy no choice"
    assert found.install == (
        f"--find-links {here}/deep/near", f"--find-links {here}/wheels", "torch==2.13.0 --hash=sha256:aa", "numpy>=2",
    )  # fmt: skip
    assert found.constraints == ("numpy==2.3.1",)


def test_all_faults_with_their_places(here):
    (here / "r.txt").write_text("torch=2\n\n-r gone.txt\n./nothing\nok\n")
    with pytest.raises(ManyErrors) as caught:
        read("-r r.txt")
    assert [f.place for f in caught.value.faults] == ["r.txt:1", "r.txt:3", "r.txt:4"]
    assert "`gone.txt` cannot be read: No such file" in caught.value.faults[1].message


def test_a_file_that_another_task_makes(here):
    found = read("-r lock.txt", file_dep=("lock.txt",))
    assert found.missing == ("lock.txt",)
    assert not found.pinned


def test_sources_on_this_disk_count_by_content(here):
    (here / "pkg/build").mkdir(parents=True)
    (here / "pkg/.venv").mkdir()
    (here / "pkg/pyproject.toml").write_text("[project]\nname = 'pkg'\n")
    (here / "pkg/m.py").write_text("x = 1\n")
    copied, inplace = read("./pkg"), read("-e ./pkg")
    assert copied.lines == ("./pkg",)
    assert inplace.editable == (f"{here}/pkg",)
    for leftover in ("build/m.py", ".venv/m.py", "data.bin"):
        (here / "pkg" / leftover).write_text("y")
        assert read("./pkg") == copied
    (here / "pkg/m.py").write_text("x = 2\n")
    assert read("./pkg").local != copied.local
    assert read("-e ./pkg") == inplace, "its code is an input by itself"
    (here / "pkg/pyproject.toml").write_text("[project]\nname = 'pkg'\ndependencies = ['a']\n")
    assert read("-e ./pkg").local != inplace.local


def key(*lines: str, python: str = "", at: str = "") -> str:
    run = Run(kind="command", argv=("true",), requirements=lines, python=python)
    return environments.look(run, Digests(Layout(at or os.getcwd()))).name


def test_the_name_tells_what_is_in_it(here):
    mine = ".".join(map(str, sys.version_info[:2]))
    assert key("a==1", "b==2") == key("b == 2", "A==1")
    assert key("a==1") == key("a==1", python=mine) == key("a==1", python=sys.executable)
    assert key("a==1") != key("a==2")
    for name in ("one", "two"):
        (here / name / "pkg").mkdir(parents=True)
        (here / name / "pkg/setup.py").write_text("")
    assert key("./pkg", at="one") == key("./pkg", at="two"), "checkouts share what is copied"
    assert key("-e ./pkg", at="one") != key("-e ./pkg", at="two")


def test_where_they_are(here, monkeypatch):
    assert environments.home(Layout()) == f"{here}/.gputasks/envs"
    monkeypatch.setenv("GPUTASKS_ENVS_DIR", "shared")
    assert environments.home(Layout()) == f"{here}/shared"
    monkeypatch.setenv("GPUTASKS_ENVS_DIR", "~/envs")
    assert environments.home(Layout()) == os.path.expanduser("~/envs")


def test_a_version_that_is_not_there(here, monkeypatch):
    shim = here / "bin/python3.98"
    shim.parent.mkdir()
    shim.write_text("#!/bin/sh\necho 'pyenv: python3.98: command not found' >&2\nexit 127\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", f"{shim.parent}:/usr/bin:/bin")
    mine = ".".join(map(str, sys.version_info[:3]))
    with pytest.raises(ConfigError) as caught:
        bases.find("3.98", Digests(Layout(str(here))))
    assert caught.value.message == "there is no Python 3.98 on PATH"
    assert any(f.startswith(f"found: {mine} (/") for f in caught.value.facts)
    assert not any("3.98" in f for f in caught.value.facts), "a shim that starts nothing is none"
    with pytest.raises(ConfigError, match=r"`2\.7` is no version"):
        bases.find("2.7", Digests(Layout(str(here))))


def test_the_choice_for_a_version_stays(here, monkeypatch):
    """`python3.11` of an environment that is activated later is no reason to make anything anew."""
    version = ".".join(map(str, sys.version_info[:2]))
    real = bases.find("", Digests(Layout(str(here))))
    monkeypatch.setattr(bases, "_driver", lambda: bases.Base("/other", "3.1.0", "CPython"))
    for name in ("first", "second"):
        (here / name).mkdir()
        (here / name / f"python{version}").symlink_to(real.executable)
    digests = Digests(Layout(str(here)))
    monkeypatch.setenv("PATH", f"{here}/first")
    found = bases.find(version, digests)
    assert found == real, "links are resolved"
    monkeypatch.setenv("PATH", "/nowhere")
    assert bases.find(version, digests) == found
    digests.cache.put(bases.TABLE, version, ["stamp of another", *vars(found).values(), ""])
    with pytest.raises(ConfigError):
        bases.find(version, digests)


def inputs(lines, packages, *, pinned=True, local=None):
    return {
        "version": 1, "kind": "command", "smoke": False, "params": {}, "params_style": "flags", "args": [], "argv": [],
        "shell": False, "env": {}, "cwd": "", "workers": {}, "artifacts": {}, "python": "CPython 3.11.7",
        "requirements": {"lines": lines, "local": local or {}, "pinned": pinned}, "packages": packages,
        "files": {}, "code": {}, "missing": [],
    }  # fmt: skip


def texts(old, new):
    return [c["text"] for c in compare(old, new, Layout())]


def test_what_is_told_of_a_change():
    old = inputs(["--pre", "a==1", "b==1"], {"a": "1"}, local={"./p": "blake3:1"})
    new = inputs(["a==2", "c==1"], None, local={"./p": "blake3:2"})
    assert texts(old, new) == [
        "requirements changed: --pre removed",
        "requirements changed: a==1 -> a==2",
        "requirements changed: b==1 removed",
        "requirements changed: c==1 added",
        "./p changed",
    ]
    assert texts(inputs(["a"], {"a": "1"}), inputs(["a"], {"a": "2"})) == ["package a: 1 -> 2"]


def test_an_environment_that_is_not_there():
    known, unknown = {"a": "1", "z": "3"}, None
    assert texts(inputs(["a==1"], known), inputs(["a==1"], unknown)) == []
    assert texts(inputs(["a"], known, pinned=False), inputs(["a"], unknown, pinned=False)) == [
        "its environment is not built here yet"
    ]
    assert inputs_digest(inputs(["a==1"], known)) == inputs_digest(inputs(["a==1"], unknown))
    loose = [inputs(["a"], p, pinned=False) for p in (known, unknown)]
    assert inputs_digest(loose[0]) != inputs_digest(loose[1])


def test_a_receipt_of_an_earlier_version_has_no_requirements():
    old = inputs([], {"a": "1"})
    del old["requirements"]
    new = inputs([], {"a": "1"})
    new["requirements"] = {}
    assert texts(old, new) == []


def test_credentials_are_a_file_for_a_while(tmp_path, monkeypatch):
    monkeypatch.setenv("NETRC", str(tmp_path / "mine"))
    (tmp_path / "mine").write_text("machine other login me password mine")
    told = Credentials(
        ["https://me:${secrets.T}@host:8080/simple", "https://${secrets.U}@second/simple"], {"T": "t0p@s", "U": "tokens"}, str(tmp_path)
    )  # fmt: skip
    path = tmp_path / "netrc"
    path.write_text("left by a process that was killed")
    with told.netrc(str(path)) as more:
        assert more == {"NETRC": str(path)}
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.read_text().split("\n\n") == [
            "machine other login me password mine",
            "machine host login me password t0p@s\nmachine second login tokens\n",
        ]
    assert not path.exists()
    assert told.hide("GET https://tokens@second/ t0p@s") == "GET https://***@second/ ***"
    told.check(version="3.11.2", uv=False)
    told.check(version="3.10.2", uv=True)
    with pytest.raises(MachineError, match="without a password"):
        told.check(version="3.10.2", uv=False)


def test_credentials_that_cannot_be_used(tmp_path):
    with pytest.raises(MachineError) as caught:
        Credentials(["https://${secrets.GPU_T}@host/simple"], {}, str(tmp_path))
    assert "`GPU_T`" in caught.value.message
    assert "`https://${secrets.GPU_T}@host/simple` of this task" in caught.value.facts[0]
    with pytest.raises(MachineError, match="holds a space"):
        Credentials(["https://${secrets.T}@host/simple"], {"T": "a b"}, str(tmp_path))
    with pytest.raises(ConfigError, match="two indexes on `host`"):
        Credentials(
            ["https://${secrets.T}@host/a", "https://${secrets.U}@host/b"],
            {"T": "1", "U": "2"},
            str(tmp_path),
        )


def command(**keys):
    return command_run(["true"], (), keys)


def test_keywords(here):
    (here / "r.txt").write_text("a\n")
    assert command(requirements="r.txt").requirements == ("-r ./r.txt",)
    assert command(requirements=Path("r.txt")).requirements == ("-r ./r.txt",)
    assert command(requirements=["a==1 ", "# note", "-r r.txt"]).requirements == (
        "a==1",
        "-r r.txt",
    )
    assert not command(requirements=[]).has_environment
    assert command(python="3.11").has_environment
    assert command(python="3").has_environment
    assert not command(python="python3.11").has_environment
    assert command(requirements="lock.txt", file_dep=["lock.txt"]).has_environment


@pytest.mark.parametrize(("keys", "said", "hint"), [
    ({"requirements": "r.txt"}, "requirements file `r.txt` is missing", ""),
    ({"requirements": "torch==2.13"}, "requirements file `torch==2.13` is missing", 'requirements=["torch==2.13"]'),
    ({"requirements": 3}, "must be a file or a list of requirements", ""),
    ({"requirements": [3]}, "must be a list of requirements, one text each", ""),
    ({"requirements": ["a\nb"]}, "one text each", ""),
    ({"requirements": ["torch=2"]}, "`torch=2` is no requirement in `requirements` of `gt.command`", "torch==2"),
    ({"python": 3.11}, "must be a path, a program or a version, not `3.11`", '"3.11"'),
    ({"requirement": []}, "unknown key `requirement`", "requirements"),
])  # fmt: skip
def test_faulty_keywords(here, keys, said, hint):
    with pytest.raises(ConfigError) as caught:
        command(**keys)
    assert said in caught.value.message
    assert hint in caught.value.hint


def made(home: Path, name: str, *, size: int = 100, used: float = 0.0) -> Path:
    folder = home / name
    folder.mkdir(parents=True)
    (folder / "x").write_bytes(b"x" * size)
    write_json(str(folder / "ready.json"), {})
    (folder / "used").touch()
    os.utime(folder / "used", (used, used))
    (home / f"{name}.lock").touch()
    return folder


def test_what_nothing_needs(tmp_path):
    old, kept, running, being_made = (
        made(tmp_path, n, used=9.0) for n in ("old", "kept", "running", "made")
    )
    with open(running / "used") as use, open(f"{being_made}.lock") as lock:
        fcntl.flock(use, fcntl.LOCK_SH)
        fcntl.flock(lock, fcntl.LOCK_EX)
        (found,) = environments.unused(str(tmp_path), [str(kept)])
        assert found == (str(old), 100 + (old / "ready.json").stat().st_size, 9.0)
        assert not environments.remove(str(running))
        assert not environments.remove(str(being_made))
    assert environments.remove(str(old))
    assert not old.exists()
    assert [p for p, _, _ in environments.unused(str(tmp_path), ["kept"])] == [
        str(being_made),
        str(running),
    ]
    assert environments.unused(str(tmp_path / "none"), []) == []
    assert json.loads((kept / "ready.json").read_text()) == {}
