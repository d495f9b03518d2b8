"""A project in a temporary folder, and doit run on it as a user would."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import venv
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gputasks.testing import fake_torch

MARK = "ORPHAN_TEST_MARK"
"""Every process of a test carries this variable, so that none can hide."""


def living(mark: str) -> dict[int, str]:
    """Processes that carry the mark, by pid."""
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            environ = Path(f"/proc/{name}/environ").read_bytes()
            if f"{MARK}={mark}".encode() in environ.split(b"\0"):
                state = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z":
                    found[int(name)] = (
                        Path(f"/proc/{name}/cmdline").read_bytes().decode(errors="replace")
                    )
        except OSError:
            continue
    return found


def eventually(condition, seconds: float = 10.0, *, what: str = "the condition"):
    """Poll until true; what it returned."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come true in {seconds} s")
        time.sleep(0.02)


@dataclass
class Project:
    """A folder with a dodo.py."""

    root: Path
    mark: str
    env: dict[str, str] = field(default_factory=dict)
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def write(self, name: str, text: str | bytes) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(text, bytes):
            path.write_bytes(text)
        else:
            path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    def dodo(self, text: str) -> None:
        self.write(
            "dodo.py",
            "import gputasks as gt\nDOIT_CONFIG = gt.doit_config()\n" + textwrap.dedent(text),
        )

    def environ(self, **extra: str) -> dict[str, str]:
        return {
            **os.environ,
            "COLUMNS": "100",
            "GPUTASKS_ARTIFACT_WAIT_S": "0.2",
            MARK: self.mark,
            "GPUTASKS_LEASE_DIR": str(self.root.parent / "leases"),
            **self.env,
            **extra,
        }

    def run(self, *argv: str, timeout: float = 60, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            argv, cwd=self.root, env=self.environ(**env), capture_output=True, text=True,
            errors="replace", timeout=timeout, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def doit(self, *args: str, timeout: float = 60, **env: str) -> subprocess.CompletedProcess[str]:
        return self.run(sys.executable, "-m", "doit", *args, timeout=timeout, **env)

    def gputasks(self, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        return self.run(sys.executable, "-m", "gputasks.cli.main", *args, **env)

    def start(self, *args: str, **env: str) -> subprocess.Popen[bytes]:
        """doit in the background, in a session of its own, output in a file."""
        with open(self.root.parent / f"out-{len(self.started)}", "wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "doit", *args], cwd=self.root, env=self.environ(**env),
                stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        self.started.append(process)
        return process

    def output(self, process: subprocess.Popen[bytes]) -> str:
        index = self.started.index(process)
        return (self.root.parent / f"out-{index}").read_text(errors="replace")

    def living(self) -> dict[int, str]:
        return living(self.mark)

    def gone(self, seconds: float = 10.0) -> None:
        """Nothing of this project lives any more."""
        deadline = time.monotonic() + seconds
        while (left := self.living()) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not left, f"still alive after {seconds} s: {left}"


@pytest.fixture
def project(tmp_path: Path):
    root = tmp_path / "project"
    root.mkdir()
    made = Project(root, mark=f"{os.getpid()}-{tmp_path.name}-{time.monotonic_ns()}")
    yield made
    for process in made.started:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()
    deadline = time.monotonic() + 15
    while made.living() and time.monotonic() < deadline:
        time.sleep(0.05)
    left = made.living()
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    shutil.rmtree(root, ignore_errors=True)
    assert not left, f"the test left processes behind: {left}"


@pytest.fixture(scope="session")
def fake_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter whose torch is only a launcher: workers start in 0.1 s instead of 3 s."""
    folder = tmp_path_factory.mktemp("fake")
    venv.create(folder, symlinks=True, with_pip=False)
    (site,) = folder.glob("lib/python*/site-packages")
    fake_torch(str(site))
    return str(folder / "bin" / "python")


@pytest.fixture
def engine():
    """A container engine with a tiny base image; the test is skipped where none answers."""
    import docker_images

    found = docker_images.engine_or_reason()
    if isinstance(found, str):
        pytest.skip(found)
    docker_images.make_tiny()
    return found


@pytest.fixture
def image_name(engine, tmp_path: Path):
    """A name for an image that nobody else has; what was built under it goes at the end."""
    import docker_images

    name = f"t{os.getpid()}-{time.monotonic_ns() % 10**9}"
    yield name
    for each in (f"{name}-child", name):  # an image goes after those made from it
        docker_images.remove_images(each)
