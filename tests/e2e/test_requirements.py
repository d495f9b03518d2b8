"""Virtual environments of tasks: made once, shared, part of the fingerprint."""

from __future__ import annotations

import base64
import contextlib
import csv
import hashlib
import http.server
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import zipfile
from pathlib import Path

import pytest
from conftest import eventually

from gputasks.testing import fake_torch


def wheel(folder: Path, name: str, version: str, files: dict[str, str] | None = None, requires=()):
    """A wheel with a module of the package's name."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    files = dict(files or {f"{name}.py": f"version = {version!r}\n"})
    needs = "".join(f"Requires-Dist: {r}\n" for r in requires)
    files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}"
    files[f"{info}/WHEEL"] = (
        "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    rows = io.StringIO()
    writer = csv.writer(rows, lineterminator="\n")
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=")
        writer.writerow([path, f"sha256={digest.decode()}", len(text.encode())])
    writer.writerow([f"{info}/RECORD", "", ""])
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name_, text in {**files, f"{info}/RECORD": rows.getvalue()}.items():
            archive.writestr(name_, text)
    return path


@pytest.fixture
def project(project):
    """Wheels lie beside the project; no index of the machine has a say."""
    project.env.update(PIP_NO_INDEX="1", PIP_FIND_LINKS="", PIP_CONFIG_FILE=os.devnull)
    for version in ("1.0", "1.1"):
        wheel(project.root / "wheels", "alpha", version)
    wheel(project.root / "wheels", "beta", "2.0", requires=["alpha"])
    return project


def envs(project) -> list[Path]:
    return sorted(p.parent for p in (project.root / ".gputasks/envs").glob("*/ready.json"))


SHOW = "import alpha, sys; open(sys.argv[1], 'w').write(alpha.version)"

TWO = """
def command(name, lines):
    return gt.command(["python", "-c", {show!r}, name], requirements=["--find-links wheels", *lines], artifacts=[name])
def task_a():
    return command("a.txt", ["alpha=={a}"])
def task_b():
    return command("b.txt", ["alpha=={b}"])
"""


def two(project, a: str, b: str) -> None:
    project.dodo(TWO.format(show=SHOW, a=a, b=b))


def test_made_once_and_shared_and_only_what_changed_is_made_again(project):
    two(project, "1.0", "1.0")
    first = project.doit()
    assert first.returncode == 0, first.stderr
    assert first.stderr.count("makes its environment: 1 requirement with pip, Python 3.") == 1
    assert (project.root / "b.txt").read_text() == "1.0"
    (env,) = envs(project)
    assert not list(env.parent.glob("*.txt")) + list(env.parent.glob("*.netrc"))
    again = project.doit()
    assert again.stderr.count("up to date") == 2
    two(project, "1.0", "1.1")
    changed = project.doit()
    assert "requirements changed: alpha==1.0 -> alpha==1.1" in changed.stderr
    assert "a (up to date)" in changed.stderr
    assert (project.root / "b.txt").read_text() == "1.1"
    assert len(envs(project)) == 2
    log = project.root / ".gputasks/runs/b/latest/environment.log"
    assert "Successfully installed alpha-1.1" in log.read_text()


def no_processes(project, *args):
    """doit, where every start of a process is written down; what was started."""
    seen = project.root.parent / "started"
    project.write(
        "../audit/sitecustomize.py",
        f"""\
        import sys
        def hook(event, args):
            if event.startswith(("subprocess.", "os.fork", "os.exec", "os.posix_spawn", "os.system")):
                open({str(seen)!r}, "a").write(event + str(args)[:300] + chr(10))
        sys.addaudithook(hook)
        """,
    )
    result = project.doit(*args, PYTHONPATH=str(project.root.parent / "audit"))
    return result, seen.read_text() if seen.exists() else ""


def test_nothing_is_started_while_all_is_up_to_date(project):
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    project.write("requirements.txt", "--find-links wheels\nalpha==1.0\n")
    project.dodo(f"""
        def task_a():
            return gt.command(["python", "-c", {SHOW!r}, "a.txt"], requirements="requirements.txt",
                              python={version!r}, artifacts=["a.txt"])
        def task_b():
            return gt.command(["python", "-c", {SHOW!r}, "b.txt"], requirements="requirements.txt",
                              python={sys.executable!r}, artifacts=["b.txt"])
    """)
    assert project.doit().returncode == 0
    assert len(envs(project)) == 1, "the same Python by three names"
    project.doit()
    result, started = no_processes(project)
    assert result.stderr.count("up to date") == 2, result.stderr
    assert not started
    loaded = project.run(
        sys.executable, "-X", "importtime", "-m", "doit", PYTHONPATH=""
    ).stderr  # fmt: skip
    names = {line.rpartition("|")[2].strip() for line in loaded.splitlines() if "|" in line}
    assert "gputasks.environments.requirements" in names
    assert not names & {
        "gputasks.environments.make",
        "gputasks.environments.steps",
        "netrc",
        "rich",
    }


@pytest.mark.slow
def test_files_count_by_what_they_ask_for(project):
    project.write("requirements.txt", "-r more/base.txt\n-c limits.txt\n--find-links wheels\n")
    project.write("more/base.txt", "alpha\nbeta\n")
    project.write("limits.txt", "alpha==1.0\nbeta==2.0\n")
    project.dodo(f"""
        def task_a():
            return gt.command(["python", "-c", {SHOW!r}, "a.txt"], requirements="requirements.txt", artifacts=["a.txt"])
    """)
    assert project.doit().returncode == 0
    assert (project.root / "a.txt").read_text() == "1.0"
    project.write("more/base.txt", "# only words\nBeta   # and order\n\nALPHA\n")
    assert "up to date" in project.doit().stderr
    assert len(envs(project)) == 1
    project.write("limits.txt", "alpha==1.1\nbeta==2.0\n")
    result = project.doit()
    assert "requirements changed: -c alpha==1.0 -> -c alpha==1.1" in result.stderr
    assert (project.root / "a.txt").read_text() == "1.1"


def test_a_training(project):
    site = project.root.parent / "site"
    fake_torch(str(site))
    files = {str(p.relative_to(site)): p.read_text() for p in site.rglob("torch/**/*.py")}
    wheel(project.root / "wheels", "torch", "2.13.0", files)
    project.write(
        "train.py",
        "import alpha, os, sys\nif os.environ['RANK'] == '0':\n    open('out.txt', 'w').write(sys.prefix)\n",
    )
    text = """
        def task_train():
            return gt.train("train.py", requirements=[{}"alpha==1.0", "--find-links=wheels"], nproc_per_node=2,
                            artifacts=["out.txt"], resources=gt.Resources(gpu_count=0))
    """
    project.dodo(text.format(""))
    result = project.doit()
    assert result.returncode == 2
    assert "has no torch" in result.stderr
    assert "hint: name it in `requirements=`" in result.stderr
    project.dodo(text.format('"./wheels/torch-2.13.0-py3-none-any.whl", '))
    result = project.doit()
    assert result.returncode == 0, result.stderr
    assert Path((project.root / "out.txt").read_text()).parent == project.root / ".gputasks/envs"
    record = json.loads((project.root / ".gputasks/runs/train/latest/run.json").read_text())
    assert record["packages"] == {"alpha": "1.0", "torch": "2.13.0"}
    assert "up to date" in project.doit().stderr
    wheel(project.root / "wheels", "torch", "2.13.0", {**files, "torch/more.py": ""})
    result = project.doit()
    assert "wheels/torch-2.13.0-py3-none-any.whl changed" in result.stderr
    assert result.returncode == 0


def test_an_installer_that_fails_costs_nothing_that_was_made(project):
    text = """
        def task_a():
            return gt.command(["python", "-c", {show!r}, "a.txt"], requirements=["--find-links wheels", "{line}"], artifacts=["a.txt"])
    """
    project.dodo(text.format(show=SHOW, line="alpha==1.0"))
    assert project.doit().returncode == 0
    project.dodo(text.format(show=SHOW, line="alpha==9"))
    result = project.doit()
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert "error: the environment of `a` could not be made: pip ended with code 1" in result.stderr
    assert "No matching distribution found for alpha==9" in result.stderr
    log = result.stderr.partition("log: ")[2].split()[0]
    assert "No matching distribution" in (project.root / log).read_text()
    assert len(envs(project)) == 1
    assert len([p for p in (project.root / ".gputasks/envs").iterdir() if p.is_dir()]) == 1
    assert (project.root / "a.txt").read_text() == "1.0"
    project.dodo(text.format(show=SHOW, line="alpha==1.0"))
    before = (project.root / "a.txt").stat()
    result = project.doit()
    assert result.returncode == 0, result.stderr
    assert "restored" not in result.stderr
    assert (project.root / "a.txt").stat() == before, "its receipt still holds"
    project.dodo(text.format(show=SHOW, line="alpha=1.0"))
    result = project.doit()
    assert result.returncode == 3
    assert "hint: write `alpha==1.0`" in result.stderr


def test_faulty_lines_of_files_are_told_with_their_places(project):
    project.write("requirements.txt", "alpha\nbeta=2\n\n-r gone.txt\n")
    project.dodo("""
        def task_a():
            return gt.command(["true"], requirements="requirements.txt", artifacts=["a.txt"])
    """)
    result = project.doit()
    assert result.returncode == 3
    assert "`beta=2` is no requirement\n  --> requirements.txt:2" in result.stderr
    assert (
        "requirements file `gone.txt` cannot be read: No such file or directory\n  --> requirements.txt:4"
        in result.stderr
    )
    assert "Traceback" not in result.stderr


SLOW = """\
import os, time
def build_wheel(folder, *_):
    open(os.environ["READY"], "w").write(str(os.getpid()))
    while os.path.exists(os.environ["READY"]):
        time.sleep(0.02)
    import zipfile
    name = "slow-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as z:
        z.writestr("slow.py", "")
        z.writestr("slow-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: slow\\nVersion: 1.0\\n")
        z.writestr("slow-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        z.writestr("slow-1.0.dist-info/RECORD", "")
    return name
"""
"""A build that goes on while a file is there."""


@pytest.fixture
def slow(project):
    project.write("slow/backend.py", SLOW)
    project.write(
        "slow/pyproject.toml",
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n[project]\nname = "slow"\nversion = "1.0"\n',
    )
    ready = project.root / "ready"
    project.env["READY"] = str(ready)
    project.dodo("""
        def task_a():
            return gt.command(["python", "-c", "import slow; open('a.txt', 'w').write('1')"], requirements=["./slow"], artifacts=["a.txt"])
        def task_b():
            return gt.command(["python", "-c", "import slow; open('b.txt', 'w').write('1')"], requirements=["./slow"], artifacts=["b.txt"])
    """)
    return ready


@pytest.mark.slow
@pytest.mark.parametrize(
    ("signum", "args"),
    [
        (signal.SIGINT, ["a"]),
        (signal.SIGTERM, ["-n", "2", "-P", "thread", "a", "b"]),
        (signal.SIGINT, ["-n", "2", "-P", "process", "a", "b"]),
        (signal.SIGKILL, ["a"]),
    ],
)
def test_an_installation_that_is_ended_leaves_nothing(project, slow, signum, args):
    process = project.start("run", *args)
    eventually(lambda: slow.exists() and slow.read_text(), 60)
    os.kill(process.pid, signum)
    code = process.wait(30)
    assert code == {signal.SIGINT: 130, signal.SIGTERM: 143}.get(signum, -9), project.output(
        process
    )
    assert "Traceback" not in project.output(process)
    project.gone(15)
    assert not envs(project)
    if signum != signal.SIGKILL:
        assert [p.name.partition(".")[2] for p in (project.root / ".gputasks/envs").iterdir()] == [
            "lock"
        ]
    slow.unlink()
    process = project.start("a")
    eventually(lambda: slow.exists() and slow.read_text(), 60)
    slow.unlink()
    assert process.wait(60) == 0, project.output(process)
    assert (project.root / "a.txt").exists()


@pytest.mark.parametrize("mode", ["process", "thread"])
def test_tasks_that_start_together_make_it_once(project, slow, mode):
    process = project.start("run", "-n", "2", "-P", mode, "a", "b")
    eventually(lambda: slow.exists() and slow.read_text(), 60)
    eventually(lambda: "its environment is being made by" in project.output(process), 30)
    slow.unlink()
    assert process.wait(60) == 0, project.output(process)
    output = project.output(process)
    assert output.count("makes its environment") == 1
    assert len(envs(project)) == 1
    assert (project.root / "b.txt").exists()


def forget_envs(project):
    shutil.rmtree(project.root / ".gputasks/envs")


def test_pinned_requirements_need_no_environment_to_be_up_to_date(project):
    two(project, "1.0", "1.0")
    assert project.doit().returncode == 0
    forget_envs(project)
    assert project.gputasks("why", "a").stdout == "a: up to date\n"
    assert project.doit().stderr.count("up to date") == 2
    assert not (project.root / ".gputasks/envs").exists()
    two(project, "1.1", "1.0")
    result = project.doit()
    assert "requirements changed: alpha==1.0 -> alpha==1.1" in result.stderr
    assert "not built" not in result.stderr
    assert (project.root / "a.txt").read_text() == "1.1"


@pytest.mark.slow
def test_loose_requirements_are_looked_at_when_the_environment_is_there_again(project):
    project.dodo(f"""
        def task_a():
            return gt.command(["python", "-c", {SHOW!r} + "; open('count', 'a').write('x')", "a.txt"],
                              requirements=["--find-links wheels", "alpha>=1.0"], artifacts=["a.txt"])
    """)
    assert project.doit().returncode == 0
    assert "up to date" in project.doit().stderr
    forget_envs(project)
    assert (
        project.gputasks("why", "a").stdout
        == "a: would run\n  its environment is not built here yet\n"
    )
    result = project.doit()
    assert result.returncode == 0, result.stderr
    assert len(envs(project)) == 1
    assert (project.root / "count").read_text() == "x", (
        "with the same packages there is nothing to do"
    )
    assert "it holds the same packages as before" in result.stderr
    assert "up to date" in project.doit().stderr
    forget_envs(project)
    wheel(project.root / "wheels", "alpha", "1.2")
    result = project.doit()
    assert "package alpha: 1.1 -> 1.2" in result.stderr
    assert (project.root / "a.txt").read_text() == "1.2"


def test_the_cache_is_asked_before_an_environment_is_made(project):
    two(project, "1.0", "1.0")
    assert project.doit().returncode == 0
    two(project, "1.1", "1.0")
    assert project.doit().returncode == 0
    forget_envs(project)
    two(project, "1.0", "1.0")
    result = project.doit("a")
    assert "restored from the cache" in result.stderr, result.stderr
    assert "makes its environment" not in result.stderr
    assert (project.root / "a.txt").read_text() == "1.0"
    receipt = json.loads((project.root / ".gputasks/receipts/a.json").read_text())
    assert receipt["inputs"]["packages"] == {"alpha": "1.0"}
    assert "makes its environment" in project.doit("-a", "b").stderr
    assert "up to date" in project.doit("a").stderr, (
        "its packages are those of the run that is kept"
    )


@pytest.mark.slow
def test_gc_takes_what_no_newest_run_used(project):
    two(project, "1.0", "1.0")
    assert project.doit().returncode == 0
    two(project, "1.1", "1.1")
    assert project.doit().returncode == 0
    assert "environment" not in project.gputasks("gc").stdout, "it is too young"
    old, new = sorted(envs(project), key=lambda p: (p / "used").stat().st_mtime)
    told = project.gputasks("gc", "--older-than", "0").stdout
    assert f".gputasks/envs/{old.name}  (no newest run used it)" in told
    assert new.name not in told
    assert project.gputasks("gc", "--older-than", "0", "--yes").returncode == 0
    assert envs(project) == [new]
    assert project.doit().stderr.count("up to date") == 2


def test_plan_of_what_is_not_there_yet(project):
    project.dodo("""
        def task_a():
            return gt.command(["make-it"], requirements=["alpha==1.0"], artifacts=["a.txt"])
        def task_b():
            return gt.command(["python", "-V"], requirements=["alpha==1.0"], artifacts=["b.txt"])
    """)
    result = project.gputasks("plan")
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("would run") == 2
    assert "but:" not in result.stdout
    assert f"argv: {project.root}/.gputasks/envs/" in result.stdout
    assert not (project.root / ".gputasks/envs").exists()


@pytest.mark.slow
def test_checkouts_share_and_a_moved_project_makes_its_own_anew(project):
    shared = project.root.parent / "shared"
    two(project, "1.0", "1.0")
    assert project.doit(GPUTASKS_ENVS_DIR=str(shared)).returncode == 0
    assert not (project.root / ".gputasks/envs").exists()
    other = project.root.parent / "other"
    shutil.copytree(project.root, other, ignore=shutil.ignore_patterns(".gputasks"))
    project.root, first = other, project.root
    result = project.doit(GPUTASKS_ENVS_DIR=str(shared))
    assert result.returncode == 0, result.stderr
    assert "makes its environment" not in result.stderr
    result = project.doit()  # in .gputasks of its own: the inputs are the same
    assert result.stderr.count("up to date") == 2
    assert "makes its environment" in project.doit("-a").stderr
    project.root = project.root.rename(other.with_name("moved"))
    result = project.doit("-a", "a")
    assert result.returncode == 0, result.stderr
    assert "makes its environment" in result.stderr, "its programs name the path where it was"
    shutil.rmtree(project.root)
    project.root = first


@pytest.mark.slow
def test_programs_of_the_environment_are_found_first(project):
    files = {
        "tool.py": "def main():\n    import sys\n    open('t.txt', 'w').write(sys.prefix)\n",
        "tool-1.0.dist-info/entry_points.txt": "[console_scripts]\nmake-it = tool:main\n",
    }
    wheel(project.root / "wheels", "tool", "1.0", files)
    project.write("gputasks.toml", """\
        [runs.direct]
        command = ["make-it"]
        requirements = ["./wheels/tool-1.0-py3-none-any.whl"]
        artifacts = ["t.txt"]
        [runs.piped]
        shell = "make-it | cat; python -c 'import tool' && cp t.txt p.txt"
        requirements = ["./wheels/tool-1.0-py3-none-any.whl"]
        artifacts = ["p.txt"]
    """)  # fmt: skip
    project.dodo("""
        project = gt.load("gputasks.toml")
        def task_t():
            for name, run in project.runs.items():
                yield gt.command(run, name=name)
    """)
    result = project.doit()
    assert result.returncode == 0, result.stderr
    (env,) = envs(project)
    assert (project.root / "p.txt").read_text() == str(env)


def test_a_version_of_python(project):
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    pythons = [*sorted(pyenv.glob("versions/3.1*/bin/python3.1?"))] + [
        Path(f"/usr/bin/python3.{n}") for n in range(10, 16)
    ]
    mine = f"python3.{sys.version_info[1]}"
    other = next((p for p in pythons if p.exists() and p.name != mine), None)
    if other is None:
        pytest.skip("there is no second Python on this machine")
    project.dodo("""
        def task_v():
            return gt.command(["python", "-c", "import sys; open('v.txt', 'w').write(sys.version)"],
                              python={!r}, requirements={}, artifacts=["v.txt"])
    """.format(version := other.name.removeprefix("python"), ["--find-links wheels", "alpha==1.0"]))  # fmt: skip
    result = project.doit(PATH=f"/usr/bin:/bin:{other.parent}")
    assert result.returncode == 0, result.stderr
    assert (project.root / "v.txt").read_text().startswith(f"{version}.")
    assert "up to date" in project.doit(PATH=f"/usr/bin:/bin:{other.parent}").stderr
    again = project.doit(PATH="/usr/bin:/bin")
    assert "up to date" in again.stderr, "the choice stays while it is there"


def test_a_version_that_is_not_there(project):
    project.dodo("""
        def task_v():
            return gt.command(["python", "-V"], python="3.99", artifacts=["v.txt"])
    """)
    result = project.doit()
    assert result.returncode == 3
    mine = ".".join(map(str, sys.version_info[:3]))
    assert "there is no Python 3.99 on PATH\n" in result.stderr
    assert f"  found: {mine} (" in result.stderr
    assert "hint: `python=" in result.stderr


def test_freeze(project):
    version = f"CPython {'.'.join(map(str, sys.version_info[:3]))}"
    project.write(
        "local/pyproject.toml",
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
    )
    project.write("local/backend.py", SLOW.replace("while ", "while 0 and "))
    project.env["READY"] = str(project.root / "ready")
    project.dodo("""
        def task_a():
            return gt.command(["true"], requirements=["--find-links wheels", "beta", "./local"], artifacts=["a"])
        def task_plain():
            return gt.command(["true"], artifacts=["b"])
        def task_foreign():
            return {"actions": ["true"]}
    """)
    result = project.gputasks("freeze", "a")
    assert result.returncode == 0, result.stderr
    head, where, *lines = result.stdout.split("\n", 1)[1].splitlines()
    assert where == "--find-links wheels"
    assert head.startswith(f"# {version}, linux ")
    assert lines == ["alpha==1.1", "beta==2.0", f"slow @ file://{project.root}/local"]
    assert "a: makes its environment" in result.stderr
    again = project.gputasks("freeze", "a", "-o", "lock/a.txt")
    assert again.stdout == ""
    assert "environment" not in again.stderr
    assert (project.root / "lock/a.txt").read_text() == result.stdout
    project.dodo("""
        def task_b():
            return gt.command(["python", "-c", "import alpha, beta, slow"], requirements="lock/a.txt", artifacts=[])
        def task_plain():
            return gt.command(["true"], artifacts=["b"])
        def task_foreign():
            return {"actions": ["true"]}
    """)
    assert project.doit("b").returncode == 0
    plain = project.gputasks("freeze", "plain").stdout
    assert "\ndoit==" in plain
    assert "gputasks==" not in plain
    result = project.gputasks("freeze", "foreign")
    assert result.returncode == 3
    assert "error: task `foreign` has no Python of its own" in result.stderr
    result = project.gputasks("freeze", "plane")
    assert "hint: did you mean `plain`?" in result.stderr


@pytest.fixture(scope="session")
def uv(tmp_path_factory) -> str:
    """The folder of a uv."""
    found = shutil.which("uv")
    if found:
        return os.path.dirname(found)
    folder = tmp_path_factory.mktemp("uv")
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--target", str(folder), "uv"], capture_output=True, text=True
    )  # fmt: skip
    if done.returncode:
        pytest.skip(f"no uv on PATH, and pip cannot get it: {done.stderr[-200:]}")
    return str(folder / "bin")


def with_uv(project, folder: str) -> None:
    project.env["PATH"] = f"{folder}:{os.environ['PATH']}"
    project.env["UV_CACHE_DIR"] = str(project.root.parent / "uv-cache")
    project.env["UV_NO_INDEX"] = "1"


@pytest.mark.slow
def test_uv_where_it_is_on_the_path(project, uv):
    with_uv(project, uv)
    two(project, "1.0", "1.1")
    result = project.doit()
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("1 requirement with uv, Python 3.") == 2
    assert (project.root / "b.txt").read_text() == "1.1"
    assert project.doit(PATH=os.environ["PATH"]).stderr.count("up to date") == 2, (
        "it does not matter"
    )
    two(project, "1.0", "9")
    result = project.doit()
    assert result.returncode == 2
    assert "the environment of `b` could not be made: uv ended with code 1" in result.stderr
    assert "alpha==9" in result.stderr.partition("last lines:")[2]


TOKEN = "s3cret-t0ken"


class Index(http.server.ThreadingHTTPServer):
    """A package index that wants a password, and looks whether it can be seen by others."""

    def __init__(self, folder: Path, login: str) -> None:
        self.folder = folder
        self.login = "Basic " + base64.b64encode(login.encode()).decode()
        self.served: list[str] = []
        self.seen: list[str] = []
        super().__init__(("127.0.0.1", 0), Page)

    def look_around(self) -> None:
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if TOKEN.encode() in path.read_bytes():
                    self.seen.append(path.read_bytes().decode(errors="replace"))


class Page(http.server.BaseHTTPRequestHandler):
    server: Index

    def do_GET(self) -> None:
        self.server.look_around()
        if self.headers.get("Authorization") != self.server.login:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="x"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        name = self.path.strip("/").rpartition("/")[2]
        self.server.served.append(name)
        files = sorted(
            p.name for p in self.server.folder.iterdir() if p.name.startswith(f"{name}-")
        )
        path = self.server.folder / name
        data = (
            path.read_bytes()
            if path.is_file()
            else "".join(f'<a href="/{f}">{f}</a>' for f in files).encode()
        )
        self.send_response(200)
        self.send_header(
            "Content-Type", "application/octet-stream" if path.is_file() else "text/html"
        )
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def index(tmp_path):
    """With `gamma` as sources, whose build needs `helper`: pip then starts another pip."""
    folder = tmp_path / "index"
    wheel(
        folder,
        "helper",
        "1.0",
        {"helper.py": SLOW.replace("while ", "while 0 and ").replace("slow", "gamma")},
    )
    with tarfile.open(folder / "gamma-1.0.tar.gz", "w:gz") as archive:
        text = '[build-system]\nrequires = ["helper"]\nbuild-backend = "helper"\n'
        for name, content in (
            ("pyproject.toml", text),
            ("PKG-INFO", "Metadata-Version: 2.1\nName: gamma\nVersion: 1.0\n"),
        ):
            entry = tarfile.TarInfo(f"gamma-1.0/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content.encode()))
    servers = []

    def start(login: str) -> Index:
        server = Index(folder, login)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.slow
@pytest.mark.parametrize("installer", ["pip", "uv"])
@pytest.mark.parametrize("login", ["me:${secrets.INDEX_TOKEN}", "${secrets.INDEX_TOKEN}"])
def test_a_secret_of_an_index_is_nowhere_to_be_seen(project, index, request, installer, login):
    if installer == "uv":
        with_uv(project, request.getfixturevalue("uv"))
        del project.env["UV_NO_INDEX"]
    elif ":" not in login and sys.version_info < (3, 11):
        pytest.skip("netrc of Python 3.10 wants a password")
    server = index(login.replace("${secrets.INDEX_TOKEN}", TOKEN) + ("" if ":" in login else ":"))
    del project.env["PIP_NO_INDEX"]
    project.env["READY"] = str(project.root / "ready")
    url = f"http://{login}@127.0.0.1:{server.server_address[1]}/simple"
    project.write("requirements.txt", f"--index-url {url}\ngamma\n")
    project.dodo("""
        def task_a():
            return gt.command(["python", "-c", "import gamma; open('a.txt', 'w').write('1')"], requirements="requirements.txt", artifacts=["a.txt"])
    """)
    missing = project.doit()
    assert missing.returncode == 2
    assert "`INDEX_TOKEN`" in missing.stderr
    assert not server.served
    result = project.doit(INDEX_TOKEN=TOKEN)
    assert result.returncode == 0, result.stderr
    assert {"gamma-1.0.tar.gz", "helper-1.0-py3-none-any.whl"} <= set(server.served)
    assert not server.seen
    assert TOKEN not in result.stderr + result.stdout
    kept = [p for p in project.root.rglob("*") if p.is_file() and TOKEN.encode() in p.read_bytes()]
    assert not kept
    (env,) = envs(project)
    ready = json.loads((env / "ready.json").read_text())
    assert f"--index-url {url}" in ready["requirements"], "the reference is kept"
    assert "up to date" in project.doit().stderr, "and needs no value while nothing is installed"
