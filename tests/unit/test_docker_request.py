"""The request that makes a container: exactly the leased GPUs, what can be written, no secrets."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from conftest import Project

from gputasks.launch.docker import Engine, Owner, container_command, container_name
from gputasks.launch.engine_texts import told
from gputasks.launch.local import Attempt
from gputasks.launch.mounts import Mount, project_mounts
from gputasks.specs import Artifact, Command, Gpu, Node, NodePlacement, Placement, Resources, Run

GIB = 1 << 30
GPUS = (Gpu(2, "GPU-aa", visible_as="2"), Gpu(3, "GPU-bb", visible_as="3"))
ENGINE = Engine(socket="/run/docker.sock", cpus=8, memory_bytes=64 * GIB)
OWNER = Owner(uid=1000, gid=100, groups=[100, 44], name="ann", host="hal")


def made(
    *,
    gpus: tuple[Gpu, ...] = (),
    engine: Engine = ENGINE,
    kind: str = "train",
    env: dict[str, str] | None = None,
    **resources: object,
) -> Command:
    run = Run(
        kind=kind,  # type: ignore[arg-type]
        script="train.py" if kind == "train" else "",
        argv=() if kind == "train" else ("nvcc", "--version"),
        resources=Resources(gpu_count="auto" if kind == "train" else None, **resources),
    )
    node = Node("hal", cpu_count=8)
    placement = Placement((NodePlacement(node, gpus, len(gpus) or 1, 0),))
    return container_command(
        run,
        placement,
        Attempt("k4f2", 0, "/p/.gputasks/runs/train/k4f2/attempt-0"),
        root="/p",
        task="train",
        python="python3",
        env=env or {},
        image="repo:1",
        mounts=[Mount("/p", "/p")],
        engine=engine,
        owner=OWNER,
        home="/p/.gputasks/home",
    )


def body(command: Command) -> dict[str, object]:
    return command.container["create"]  # type: ignore[index,no-any-return]


def host(command: Command) -> dict[str, object]:
    return body(command)["HostConfig"]  # type: ignore[return-value]


def test_leased_gpus_by_uuid_and_none_by_number() -> None:
    command = made(gpus=GPUS)
    assert host(command)["DeviceRequests"] == [
        {"Driver": "", "DeviceIDs": ["GPU-aa", "GPU-bb"], "Capabilities": [["gpu"]]}
    ]
    assert "CUDA_VISIBLE_DEVICES" not in command.env
    assert "NVIDIA_VISIBLE_DEVICES" not in json.dumps(command.container)
    assert command.env["PET_NPROC_PER_NODE"] == "2"


def test_no_gpu_means_none() -> None:
    command = made()
    assert "DeviceRequests" not in host(command)
    assert command.env["CUDA_VISIBLE_DEVICES"] == ""


@pytest.mark.parametrize(
    ("engine", "ids"),
    [
        (
            Engine(
                socket="s", cdi=frozenset({"nvidia.com/gpu=GPU-aa", "nvidia.com/gpu=GPU-bb", "x"})
            ),
            ["nvidia.com/gpu=GPU-aa", "nvidia.com/gpu=GPU-bb"],
        ),
        (
            Engine(socket="s", cdi=frozenset({f"nvidia.com/gpu={i}" for i in range(4)})),
            ["nvidia.com/gpu=2", "nvidia.com/gpu=3"],
        ),
        # podman starts a container without GPUs when they are asked for in any other way
        (Engine(socket="s", podman=True), ["nvidia.com/gpu=GPU-aa", "nvidia.com/gpu=GPU-bb"]),
    ],
)
def test_gpus_by_their_cdi_names(engine: Engine, ids: list[str]) -> None:
    assert host(made(gpus=GPUS, engine=engine))["DeviceRequests"] == [
        {"Driver": "cdi", "DeviceIDs": ids}
    ]


def test_a_cdi_that_knows_only_some_is_not_used() -> None:
    engine = Engine(socket="s", cdi=frozenset({"nvidia.com/gpu=GPU-aa"}))
    (request,) = host(made(gpus=GPUS, engine=engine))["DeviceRequests"]  # type: ignore[misc]
    assert request["Driver"] == ""


def test_limits() -> None:
    asked = host(made(memory="2GiB", cpu_count=1.5, shm_size="1GiB"))
    assert (asked["Memory"], asked["MemorySwap"]) == (2 * GIB, 2 * GIB)
    assert asked["NanoCpus"] == 1_500_000_000
    assert asked["ShmSize"] == GIB
    plain = host(made())
    assert plain["ShmSize"] == 16 * GIB
    assert not {"Memory", "NanoCpus"} & set(plain)
    small = Engine(socket="s", cpus=4, memory_bytes=8 * GIB)
    assert host(made(engine=small))["ShmSize"] == 4 * GIB
    # More CPUs than there are is said by the plan; the engine would refuse the number.
    assert "NanoCpus" not in host(made(engine=small, cpu_count=6))
    assert "ShmSize" not in host(made(kind="command"))


def test_the_caller_owns_what_is_written() -> None:
    assert body(made())["User"] == "1000:100"
    assert host(made())["GroupAdd"] == ["100", "44"]
    # A rootless engine's root is the caller.
    assert body(made(engine=Engine(socket="s", rootless=True)))["User"] == "0:0"


def test_the_environment_is_only_in_the_script_for_stdin() -> None:
    command = made(env={"TOKEN": "it's\nsecret", "HF_HOME": "/models"})
    assert "secret" not in json.dumps(body(command))
    assert "Env" not in body(command)
    script = command.container["script"]  # type: ignore[index]
    assert "export TOKEN='it'\"'\"'s\nsecret'" in script
    assert "export HF_HOME=/models" in script
    assert '[ -n "${HF_HOME:-}" ]' not in script
    assert '[ -n "${TRITON_CACHE_DIR:-}" ] || export TRITON_CACHE_DIR=/p/.gputasks' in script


def test_the_process_is_a_program_under_init_on_the_hosts_network() -> None:
    command = made()
    asked = body(command)
    assert asked["Cmd"] == list(command.argv)
    assert command.argv[:4] == (
        "python3",
        "-m",
        "torch.distributed.run",
        "/opt/gputasks/agent/shim.py",
    )
    assert host(command)["Init"] is True
    assert host(command)["NetworkMode"] == "host"
    assert "AutoRemove" not in host(command)
    assert (asked["OpenStdin"], asked["StdinOnce"]) == (True, True)
    labels = asked["Labels"]
    assert labels["io.gputasks.run"] == "k4f2"  # type: ignore[index]
    assert labels["io.gputasks.task"] == "train"  # type: ignore[index]


def test_engines_that_label_or_map() -> None:
    assert host(made())["UsernsMode"] == "host"
    assert host(made(engine=Engine(socket="s", rootless=True)))["UsernsMode"] == ""
    assert host(made())["SecurityOpt"] == []
    assert host(made(engine=Engine(socket="s", selinux=True)))["SecurityOpt"] == ["label=disable"]


def test_names_of_two_projects_differ() -> None:
    one, other = (container_name(Attempt("k4f2", 0, f"/{p}/attempt-0")) for p in "ab")
    assert one != other
    assert one.startswith("gputasks-k4f2-0-")


# ---- mounts


@pytest.fixture
def root(tmp_path: Path) -> str:
    for name in ("p/data", "p/outputs/old", "p/.gputasks", "elsewhere/data", "elsewhere/ckpt"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("p/train.py", "p/outputs/notes.txt", "p/metrics.json", "elsewhere/data/x"):
        (tmp_path / name).write_text("x")
    return str(tmp_path / "p")


def writable(mounts: list[Mount], root: str) -> dict[str, bool]:
    return {os.path.relpath(m.target, root): not m.read_only for m in mounts}


def run_with(*artifacts: str) -> Run:
    return Run(kind="command", argv=("true",), artifacts=tuple(Artifact(a, a) for a in artifacts))


def test_without_artifacts_all_is_read_only(root: str) -> None:
    assert writable(project_mounts(run_with(), root), root) == {".": False}


def test_only_the_folder_of_an_artifact_is_open(root: str) -> None:
    assert writable(project_mounts(run_with("outputs/new"), root), root) == {
        ".": False,
        "outputs": True,
        "outputs/old": False,
        "outputs/notes.txt": False,
    }


def test_what_stands_beside_an_artifact_of_the_project_folder_is_closed(root: str) -> None:
    assert writable(project_mounts(run_with("metrics.json", "ckpt"), root), root) == {
        ".": True,
        ".gputasks": False,
        "data": False,
        "outputs": False,
        "train.py": False,
    }


def test_folders_for_artifacts_are_made(root: str) -> None:
    mounts = project_mounts(run_with("a/b/c.pt", "m.json"), root)
    assert Path(root, "a/b").is_dir()
    assert writable(mounts, root)["a"] is False
    assert writable(mounts, root)["a/b"] is True


def test_an_artifact_is_open_as_a_whole(root: str) -> None:
    Path(root, "outputs/old/x").write_text("x")
    mounts = project_mounts(run_with("outputs/old"), root)
    assert "outputs/old" not in writable(mounts, root)
    assert writable(mounts, root)["outputs"] is True


def test_links_lead_to_where_they_lead_outside(root: str, tmp_path: Path) -> None:
    os.symlink(tmp_path / "elsewhere/data", Path(root, "data/linked"))
    os.symlink(tmp_path / "elsewhere/ckpt", Path(root, "ckpt"))
    mounts = project_mounts(run_with("ckpt"), root, ["data/linked", str(tmp_path / "elsewhere")])
    found = {m.target: not m.read_only for m in mounts}
    assert found[str(tmp_path / "elsewhere/data")] is False
    assert found[str(tmp_path / "elsewhere/ckpt")] is True
    assert found[str(tmp_path / "elsewhere")] is False


def test_what_may_vanish_is_marked(root: str) -> None:
    mounts = project_mounts(run_with("m.json"), root)
    assert {m.target for m in mounts if not m.optional} == {root}


# ---- words


@pytest.mark.parametrize(
    ("text", "meaning", "hint"),
    [
        ('could not select device driver "" with capabilities: [[gpu]]', "no NVIDIA runtime", "nvidia-ctk runtime configure"),
        ("Unknown runtime specified nvidia", "no NVIDIA runtime", "nvidia-container-toolkit"),
        ("unknown or invalid runtime name: nvidia", "no NVIDIA runtime", "nvidia-container-toolkit"),
        ('could not select device driver "cdi" with capabilities: []', "does not know CDI", "features.cdi"),
        ("CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=7", "no device `nvidia.com/gpu=7`", "nvidia-ctk cdi generate"),
        ("nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.8, please update", "`cuda>=12.8`", "newer driver"),
        ('OCI runtime create failed: exec: "sh": executable file not found in $PATH: unknown', "has no `sh`", "with a shell"),
        ("No such image: train:1", "image `train:1` is not", "docker pull train:1"),
        ("Minimum memory limit allowed is 6MB", "below what the engine allows: 6MB", "larger `memory`"),
    ],
)  # fmt: skip
def test_what_engines_say_is_translated(text: str, meaning: str, hint: str) -> None:
    found = told(f"the engine refused: {text}")
    assert meaning in found[0]
    assert hint in found[1]


def test_other_words_stay_what_they_are() -> None:
    assert told("something new") == ("something new", "")


def test_a_run_without_an_image_imports_nothing_of_it(project: Project) -> None:
    project.dodo("""
        import atexit, sys
        def task_it():
            return gt.command(["true"])
        def tell():
            for name in sys.modules:
                if "docker" in name or "gputasks.images" in name or "container" in name:
                    print("imported", name)
        atexit.register(tell)
    """)
    result = project.doit()
    assert result.returncode == 0, result.stderr
    assert "imported" not in result.stdout
