"""Runs in containers of a real engine: same events, logs, exit codes and ends as on the host."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import eventually

from gputasks.testing import fake_nvidia_smi, fake_torch

pytestmark = pytest.mark.docker

BASE = "gputasks-test/base:bookworm"
LABEL = "io.gputasks.project"


def docker(*args: str, check: bool = True) -> str:
    return subprocess.run(
        ["docker", *args], check=check, capture_output=True, text=True, timeout=120
    ).stdout.strip()


@pytest.fixture(scope="session")
def image(tmp_path_factory):
    """A small image whose torch is only a launcher."""
    try:
        docker("image", "inspect", BASE)
    except (OSError, subprocess.SubprocessError):
        pytest.skip(f"no container engine with `{BASE}` answers")
    context = tmp_path_factory.mktemp("context")
    fake_torch(str(context / "site"))
    (context / "Dockerfile").write_text(
        f"FROM {BASE}\nCOPY site /usr/lib/python3/dist-packages\nENV BAKED=in PYTHONPATH=/baked\n"
    )
    name = f"gputasks-test/containers-{os.getpid()}:1"
    docker("build", "-q", "-t", name, str(context))
    yield name
    docker("rmi", "-f", name, check=False)


@pytest.fixture
def boxes(project):
    """Containers of the project, by `docker ps`; none may be left."""

    def find(*more: str) -> list[str]:
        return docker("ps", "-aq", "--filter", f"label={LABEL}={project.root}", *more).split()

    yield find
    left = find()
    if left:
        docker("rm", "-f", *left)
    assert not left


def train(project, image, script, more="", artifacts='["ckpt"]'):
    project.write("train.py", script)
    project.dodo(f"""
        def task_train():
            return gt.train("train.py", image={image!r}, artifacts={artifacts},
                            resources=gt.Resources(gpu_count=0), {more})
    """)


def record(project, task="train"):
    return json.loads((project.root / f".gputasks/runs/{task}/latest/run.json").read_text())


def attempt(project, task="train"):
    return project.root / f".gputasks/runs/{task}/latest/attempt-0"


def test_a_training_of_two_ranks(project, image, boxes):
    train(
        project,
        image,
        """\
        import os, sys
        rank = os.environ["RANK"]
        print("rank", rank, "of", os.environ["WORLD_SIZE"], os.environ["BAKED"], sys.path)
        print(os.environ["HOME"], os.environ.get("CUDA_VISIBLE_DEVICES"))
        os.makedirs("ckpt", exist_ok=True)
        open(f"ckpt/{rank}", "w").write(rank)
        for path in ("train.py", "dodo.py", ".gputasks/state.db", "data/new"):
            try:
                open(path, "a")
                sys.exit(f"{path} could be written")
            except OSError as error:
                print(path, error.strerror)
        if rank == "0":
            open("metrics.tmp", "w").write("{}")
            os.replace("metrics.tmp", "metrics.json")
            from gputasks_worker.progress import progress
            progress(step=1, total=2, loss=0.5)
        """,
        more='nproc_per_node=2, file_dep=["data"]',
        artifacts='["ckpt", "metrics.json"]',
    )
    project.write("data/x", "1")
    result = project.doit()
    assert result.returncode == 0, result.stderr
    assert not boxes()
    log = (attempt(project) / "rank-1.log").read_text()
    assert "rank 1 of 2 in" in log
    assert "'/opt/gputasks/agent/payload', '/baked'" in log
    assert f"{project.root}/.gputasks/home" in log
    assert log.count("Read-only file system") == 4
    assert (project.root / "ckpt/1").read_text() == "1"
    assert (project.root / "ckpt/1").stat().st_uid == os.getuid()
    assert record(project)["image"]["reference"] == image
    assert record(project)["metrics"] == {"loss": 0.5}
    assert "packages" not in record(project) or record(project)["packages"] == {}
    assert "train" in project.doit("list", "-s").stdout
    again = project.doit()
    assert "up to date" in again.stderr, again.stderr


def test_the_environment_and_its_secrets_are_nowhere_to_be_seen(project, image, boxes):
    project.env["MY_KEY"] = 's3cret\'s\n"value"'
    project.dodo(f"""
        def task_show():
            return gt.command(["sh", "-c", 'echo "$KEY" > out/key; echo 1 > out/ready; while [ ! -e out/go ]; do sleep 0.05; done'],
                              image={image!r}, env={{"KEY": "${{secrets.MY_KEY}}"}}, artifacts=["out/key", "out/ready", "out/go"])
    """)
    process = project.start()
    eventually(lambda: (project.root / "out/ready").exists(), 20, what=project.output(process))
    (box,) = boxes()
    seen = docker("inspect", box) + docker("logs", box)
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            seen += path.read_bytes().decode(errors="replace")
        except OSError:
            continue
    assert "s3cret" not in seen
    kept = [p for p in (project.root / ".gputasks").rglob("*") if p.is_file()]
    assert not [p for p in kept if b"s3cret" in p.read_bytes()]
    (project.root / "out/go").write_text("1")
    assert process.wait(20) == 0, project.output(process)
    assert (project.root / "out/key").read_text() == project.env["MY_KEY"] + "\n"


@pytest.mark.parametrize(
    ("script", "texts"),
    [
        ("exit 7", ["exited with code 7"]),
        ("kill -9 $$", ["was killed by SIGKILL"]),
        ("kill -11 $$", ["was killed by SIGSEGV"]),
        ("echo last words >&2; no-such-program", ["exited with code 127", "last words"]),
    ],
)
def test_exit_codes(project, image, boxes, script, texts):
    project.dodo(f"""
        def task_it():
            return gt.command(["sh", "-c", {script!r}], image={image!r})
    """)
    result = project.doit()
    assert result.returncode == 1
    for text in texts:
        assert text in result.stderr, result.stderr
    assert not boxes()


@pytest.mark.parametrize("ignores", [False, True])
def test_max_duration(project, image, boxes, ignores):
    ignore = "trap '' TERM; " if ignores else ""
    project.dodo(f"""
        def task_it():
            return gt.command(["sh", "-c", "{ignore}while :; do sleep 0.1; done"], image={image!r},
                              max_duration="1s", stop_grace="1s")
    """)
    result = project.doit()
    assert result.returncode == 1
    assert "timed out after 1s" in result.stderr
    assert not boxes()
    assert record(project, "it")["outcome"] == "timed_out"


def test_host_memory(project, image, boxes):
    train(
        project,
        image,
        "x = bytearray(300_000_000)\nprint(len(x))\n",
        artifacts="[]",
    )
    project.dodo(f"""
        def task_train():
            return gt.train("train.py", image={image!r}, file_dep=["dodo.py"],
                            resources=gt.Resources(gpu_count=0, memory="64MB", cpu_count=0.5))
    """)
    result = project.doit()
    assert result.returncode == 1
    assert '`memory="64MB"` was not enough' in result.stderr, result.stderr
    assert not boxes()


STOPPABLE = """\
import os, pickle, signal, sys, time
os.makedirs("ckpt", exist_ok=True)
if "--ckpt" in sys.argv:
    resume = sys.argv[sys.argv.index("--ckpt") + 1]
    assert pickle.load(open(resume, "rb")) == "at stop"
    open("ckpt/done.txt", "w").write("resumed")
    sys.exit(0)
def stop(*_):
    pickle.dump("at stop", open("ckpt/last.ckpt", "wb"))
    time.sleep(0.3)
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
open("ckpt/ready", "w").write("1")
while True:
    time.sleep(0.1)
"""


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_driver_is_signalled_a_checkpoint_is_written_and_the_next_run_resumes(
    project, image, boxes, signum
):
    train(project, image, STOPPABLE, 'args=["--ckpt", "{resume}"], stop_grace="20s"')
    process = project.start()
    ready = project.root / "ckpt/ready"
    eventually(ready.exists, 20, what=project.output(process))
    os.kill(process.pid, signum)
    code = process.wait(20)
    assert code == {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}[signum]
    eventually(lambda: not boxes(), 10, what="the end of the container")
    result = project.doit()
    assert result.returncode == 0, result.stderr
    assert "resuming from `ckpt/last.ckpt`" in result.stderr
    assert (project.root / "ckpt/done.txt").read_text() == "resumed"


STUBBORN = """\
import os, signal, subprocess, sys, time
for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(s, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(15, 1); time.sleep(300)"], start_new_session=True)
os.makedirs("ckpt", exist_ok=True)
open("ckpt/ready", "w").write("1")
time.sleep(300)
"""


def processes(project, word: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            environ = (path / "environ").read_bytes()
            line = (path / "cmdline").read_bytes()
        except OSError:
            continue
        if str(project.root).encode() in environ and word.encode() in line:
            found.append(int(path.name))
    return found


def kill(pids: list[int]) -> None:
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("victim", ["client", "container", "worker", "guard"])
def test_one_of_ours_is_killed(project, image, boxes, victim):
    train(project, image, STUBBORN, 'stop_grace="1s"')
    process = project.start()
    eventually((project.root / "ckpt/ready").exists, 20, what=project.output(process))
    if victim == "container":
        docker("kill", *boxes())
    elif victim == "client":
        kill(processes(project, "agent/container.py"))
    elif victim == "worker":
        kill(processes(project, "shim.py")[-1:])
    else:
        client = processes(project, "agent/container.py")[0]
        supervisor = int(Path(f"/proc/{client}/stat").read_text().rpartition(")")[2].split()[1])
        guardian = int(Path(f"/proc/{supervisor}/stat").read_text().rpartition(")")[2].split()[1])
        kill([guardian, supervisor])
    assert process.wait(30) == 1, project.output(process)
    assert "Traceback" not in project.output(process)
    eventually(lambda: not boxes(), 10, what="the end of the container")
    assert not processes(project, "train.py")


def test_a_second_ctrl_c_kills_at_once(project, image, boxes):
    train(project, image, STUBBORN, 'stop_grace="60s"')
    process = project.start()
    eventually((project.root / "ckpt/ready").exists, 20, what=project.output(process))
    os.kill(process.pid, signal.SIGINT)
    eventually(lambda: "stopping" in project.output(process), 10)
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(15) == 130
    assert not boxes()


def test_what_outlived_all_of_us_is_reaped_by_the_next_run(project, image, boxes):
    train(project, image, STUBBORN, 'stop_grace="1s"')
    process = project.start()
    eventually((project.root / "ckpt/ready").exists, 20, what=project.output(process))
    client = processes(project, "agent/container.py")
    supervisor = int(Path(f"/proc/{client[0]}/stat").read_text().rpartition(")")[2].split()[1])
    guardian = int(Path(f"/proc/{supervisor}/stat").read_text().rpartition(")")[2].split()[1])
    mine = [process.pid, guardian, supervisor, *client]
    for pid in mine:
        os.kill(pid, signal.SIGSTOP)
    kill(mine)
    process.wait(10)
    # Nobody of us is left: the container has seen its stdin end, and ends itself.
    eventually(lambda: not boxes("--filter", "status=running"), 15, what="the end of the container")
    assert boxes()
    project.dodo(f"""
        def task_other():
            return gt.command(["true"], image={image!r})
    """)
    result = project.doit()
    assert result.returncode == 0, result.stderr
    assert "(task `train`) had been left; it was removed" in result.stderr
    assert not boxes()


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("unix:///nowhere/docker.sock", "there is no `/nowhere/docker.sock`"),
        ("unix://{root}/dodo.py", "dodo.py` (from `DOCKER_HOST`)"),
        ("tcp://10.255.255.1:1", "another machine's"),
    ],
)
def test_no_engine_is_said_in_one_line_before_anything_moves(project, host, text):
    project.write("kept", "before")
    project.dodo("""
        def task_in():
            return gt.command(["true"], image="some:1", artifacts=["kept"])
        def task_host():
            return gt.command(["true"])
    """)
    project.env["DOCKER_HOST"] = host.format(root=project.root)
    result = project.doit("in")
    assert result.returncode == 2
    assert text in result.stderr, result.stderr
    assert "Traceback" not in result.stderr
    assert (project.root / "kept").read_text() == "before"
    assert project.doit("host").returncode == 0
    assert project.doit("list", "-s").returncode == 0


def test_a_missing_image(project, image):
    project.dodo("""
        def task_in():
            return gt.command(["true"], image="gputasks-test/none:1")
    """)
    result = project.doit("in")
    assert result.returncode == 2
    assert "image `gputasks-test/none:1` is not on the container engine" in result.stderr


def test_another_image_is_a_reason_and_the_hosts_python_is_none(project, image, boxes, tmp_path):
    tag = f"gputasks-test/containers-moving-{os.getpid()}:1"
    try:
        docker("tag", image, tag)
        train(project, tag, "open('x', 'w').write('1')\n", artifacts='["x"]')
        assert project.doit().returncode == 0
        assert "up to date" in project.doit().stderr
        (tmp_path / "Dockerfile").write_text(f"FROM {image}\nRUN echo 1 > /changed\n")
        docker("build", "-q", "-t", tag, str(tmp_path))
        result = project.doit()
        assert f"image {tag} rebuilt" in result.stderr
        train(project, image, "open('x', 'w').write('1')\n", artifacts='["x"]')
        assert f"image: {tag} -> {image}" in project.doit().stderr
    finally:
        docker("rmi", "-f", tag, check=False)


def test_gpus_of_an_engine_without_nvidia(project, image, boxes, tmp_path):
    fake_nvidia_smi(str(tmp_path / "bin"), ["GPU-aa", "GPU-bb"])
    project.env["PATH"] = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    project.write("train.py", "")
    project.dodo(f"""
        def task_train():
            return gt.train("train.py", image={image!r}, resources=gt.Resources(gpu_count=1))
    """)
    result = project.doit()
    assert result.returncode == 2
    assert "could not be started: the engine has no NVIDIA runtime" in result.stderr, result.stderr
    assert "nvidia-ctk runtime configure" in result.stderr
    assert not boxes()


def test_a_hang_shows_the_stacks_of_workers_inside(project, image, boxes):
    script = "import time\ndef stuck():\n    while True:\n        time.sleep(1)\nstuck()\n"
    train(project, image, script, 'nproc_per_node=2, stall_timeout="2s", stop_grace="1s"')
    result = project.doit()
    assert result.returncode == 1
    assert "was lost" in result.stderr
    assert "all 2 ranks are in `time.sleep(1)` (train.py:4)" in result.stderr, result.stderr
    assert not boxes()


def test_an_image_without_torch(project, boxes):
    train(project, BASE, "")
    result = project.doit()
    assert result.returncode == 1
    assert "No module named 'torch'" in result.stderr, result.stderr
    assert f"the image `{BASE}` lacks it" in result.stderr


def test_the_plan_shows_image_and_command(project, image):
    train(project, image, "")
    result = project.gputasks("plan")
    assert f"image: {image}" in result.stdout
    assert (
        "argv: python3 -m torch.distributed.run /opt/gputasks/agent/shim.py train.py"
        in result.stdout
    )


def test_files_belong_to_the_caller(project, image, boxes):
    """As another user, who may ask the engine and sees only the interpreter of this one."""
    if os.getuid() != 0:
        pytest.skip("only root can become somebody else")
    group = str(os.stat("/var/run/docker.sock").st_gid)
    project.dodo(f"""
        def task_it():
            return gt.command(["sh", "-c", "id -u > out/uid; echo 1 > $HOME/.cache/x"], image={image!r}, artifacts=["out/uid"])
    """)
    for folder in (project.root, project.root.parent, project.root.parent.parent):
        os.chmod(folder, 0o777)
    result = project.run(
        "setpriv", "--reuid", "4321", "--regid", group, "--groups", group,
        "--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search",
        sys.executable, "-m", "doit", HOME=str(project.root),
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert (project.root / "out/uid").read_text() == "4321\n"
    assert (project.root / "out/uid").stat().st_uid == 4321
    assert (project.root / ".gputasks/home/.cache/x").stat().st_uid == 4321


def test_a_training_in_an_image_that_a_task_builds(project, image, boxes):
    name = f"built-{os.getpid()}"
    project.write("images/Dockerfile", f"FROM {image}\nRUN echo 1 > /one\n")
    project.write("train.py", "open('x', 'w').write(open('/one').read())\n")
    project.dodo(f"""
        IMAGE = gt.Image({name!r}, dockerfile="images/Dockerfile", build_context_root="images", verify="none")
        def task_image():
            return gt.build(IMAGE)
        def task_train():
            return gt.train("train.py", image=IMAGE, artifacts=["x"], resources=gt.Resources(gpu_count=0))
    """)
    try:
        result = project.doit("train")
        assert result.returncode == 0, result.stderr
        assert record(project)["image"]["reference"].startswith(f"gputasks/{name}:")
        assert "up to date" in project.doit("train").stderr
        project.write("images/Dockerfile", f"FROM {image}\nRUN echo 2 > /one\n")
        result = project.doit("train")
        assert f"image {name} rebuilt" in result.stderr, result.stderr
        assert (project.root / "x").read_text() == "2\n"
    finally:
        for tag in docker("images", "-q", f"gputasks/{name}").split():
            docker("rmi", "-f", tag, check=False)


def test_what_the_engine_refuses_is_told_and_leaves_nothing(project, image, boxes, tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM scratch\nCOPY Dockerfile /\n")
    bare = f"gputasks-test/containers-bare-{os.getpid()}:1"
    docker("build", "-q", "-t", bare, str(tmp_path))
    project.dodo(f"""
        def task_bare():
            return gt.command(["/Dockerfile"], image={bare!r})
        def task_small():
            return gt.command(["true"], image={image!r}, resources=gt.Resources(memory="1MB"))
    """)
    try:
        result = project.doit("bare")
        assert result.returncode == 1
        assert "the image has no `sh`" in result.stderr, result.stderr
        result = project.doit("small")
        assert result.returncode == 2
        assert "`memory` is below what the engine allows" in result.stderr, result.stderr
        assert not boxes()
    finally:
        docker("rmi", "-f", bare, check=False)


@pytest.mark.parametrize("mode", ["process", "thread"])
def test_several_at_once_and_a_large_environment(project, image, boxes, mode):
    project.dodo(f"""
        def task_many():
            for n in range(3):
                yield gt.command(["sh", "-c", 'echo ${{#BIG}} > out/$N'], name=str(n), image={image!r},
                                 artifacts=[f"out/{{n}}"], env={{"BIG": "x" * 100_000, "N": str(n)}})
    """)
    result = project.doit("-n", "3", "-P", mode)
    assert result.returncode == 0, result.stderr
    assert [(project.root / f"out/{n}").read_text() for n in range(3)] == ["100000\n"] * 3


def test_a_file_that_vanishes_before_the_start_does_no_harm(project, image):
    order = {
        "socket": "/var/run/docker.sock",
        "name": f"gputasks-test-{os.getpid()}",
        "create": {
            "Image": image,
            "Entrypoint": ["sh", "-c", "cat; echo late >&2; exit 4"],
            "Labels": {},
            "OpenStdin": True,
            "StdinOnce": True,
            "HostConfig": {
                "Mounts": [
                    {"Type": "bind", "Source": f"{project.root}/{n}", "Target": f"/x/{n}"}
                    for n in ("here", "gone", "gone too")
                ]
            },
        },
        "optional": [f"{project.root}/gone", f"{project.root}/gone too"],
        "script": "",
        "output": str(project.root / "output"),
        "status": str(project.root / "status"),
        "grace_s": 1,
        "driver": [os.getpid(), "0"],
    }
    project.write("here", "1")
    client = Path(__file__).parents[2] / "gputasks/agent/container.py"
    ended = subprocess.Popen([sys.executable, "-I", "-S", str(client)], stdin=subprocess.PIPE)
    ended.stdin.write(json.dumps(order).encode())
    ended.stdin.close()
    eventually(lambda: docker("ps", "-q", "--filter", f"name={order['name']}"), 10)
    ended.send_signal(signal.SIGTERM)
    assert ended.wait(20) == -signal.SIGKILL, "`sh` waits for `cat` and hears no SIGTERM in time"
    said = json.loads((project.root / "status").read_text())
    assert (said["exit_code"], said["removed"]) == (137, True)


def test_secrets_are_hidden_in_what_containers_print(project, image, boxes):
    project.env["MY_KEY"] = "s3cret-value"
    train(
        project,
        image,
        """\
        import os, sys
        print("key", os.environ["KEY"])
        os.write(2, b"raw " + os.environ["KEY"].encode() + b"\\n")
        open("ckpt", "w").write(os.environ["RANK"])
        """,
        'nproc_per_node=2, env={"KEY": "${secrets.MY_KEY}"}',
    )
    with open(project.root / "dodo.py", "a") as dodo:
        dodo.write(
            f"""
def task_show():
    return gt.command(["sh", "-c", 'echo "$KEY"; exit 3'], image={image!r}, env={{"KEY": "${{secrets.MY_KEY}}"}})
"""
        )
    result = project.doit("train")
    assert result.returncode == 0, result.stderr
    for rank in (0, 1):
        log = (attempt(project) / f"rank-{rank}.log").read_text()
        assert "key ***" in log
        assert "raw ***" in log
    result = project.doit("show")
    assert "exited with code 3" in result.stderr, result.stderr
    assert (attempt(project, "show") / "output.log").read_text() == "***\n"
    kept = [p for p in (project.root / ".gputasks").rglob("*") if p.is_file()]
    assert not [p for p in kept if b"s3cret" in p.read_bytes()]
