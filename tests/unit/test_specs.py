"""The words of a dodo.py: what they accept, what they refuse, and that they stay as they are."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from gputasks.errors import ConfigError, ManyErrors
from gputasks.specs import Artifact, Image, NodeSpec, Resources, Run


@pytest.fixture(autouse=True)
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def faults(call: object, *args: object, **keys: object) -> list[ConfigError]:
    with pytest.raises(ConfigError) as caught:
        call(*args, **keys)  # type: ignore[operator]
    assert isinstance(caught.value, ValueError)
    return list(caught.value.faults) if isinstance(caught.value, ManyErrors) else [caught.value]


def test_unknown_key_names_the_nearest() -> None:
    (fault,) = faults(Resources, gpu=4)
    assert fault.message == "unknown key `gpu` of `Resources`"
    assert fault.hint == "did you mean `gpu_count`?"


@pytest.mark.parametrize(
    ("word", "meant"),
    [("gpus", "gpu_count"), ("gpu_cuont", "gpu_count"), ("cpus", "cpu_count"), ("mem", "memory"),
     ("ram", "memory"), ("shm", "shm_size"), ("pool", "pool_resources")],
)  # fmt: skip
def test_words_of_other_tools(word: str, meant: str) -> None:
    (fault,) = faults(Resources, **{word: 1})
    assert fault.hint == f"did you mean `{meant}`?"


@pytest.mark.parametrize("value", [-1, 1.5, "2", True, 10**30, 4097, "AUTO", [], [0], [2, True]])
def test_gpu_count_refused_naming_field_and_value(value: object) -> None:
    (fault,) = faults(Resources, gpu_count=value)
    assert fault.message.startswith(
        "`gpu_count` of `Resources` must be a whole number from 0 to 4096"
    )
    assert repr(value) in fault.message


def test_a_number_that_cannot_be_written_out_is_refused_all_the_same() -> None:
    (fault,) = faults(Resources, gpu_count=10**5000)
    assert fault.message.endswith("not a value of type `int`")


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), "4", True, 10**400, [1]])
def test_cpu_count_refused_naming_field_and_value(value: object) -> None:
    (fault,) = faults(Resources, cpu_count=value)
    assert fault.message.startswith("`cpu_count` of `Resources` must be a number above 0")


@pytest.mark.parametrize("value", ["16G", "0GB", "\uff11\uff16GB", "1e3MB", 16, True, b"16GB", ""])
@pytest.mark.parametrize("key", ["memory", "shm_size"])
def test_memory_refused_naming_the_field(key: str, value: object) -> None:
    (fault,) = faults(Resources, **{key: value})
    assert fault.message.startswith(f"`{key}` of `Resources`")


@pytest.mark.parametrize(
    "value", [{"licence": 0}, {"licence": "1"}, {"licence": True}, {"": 1}, {3: 1}, [1], "licence"]
)
def test_pool_resources_refused(value: object) -> None:
    (fault,) = faults(Resources, pool_resources=value)
    assert "pool_resources" in fault.message


@pytest.mark.parametrize(
    "key", ["min_replicas", "max_replicas", "autoscaling_metric", "max_concurrency"]
)
def test_keys_of_deployments_say_so(key: str) -> None:
    (fault,) = faults(Resources, **{key: 1})
    assert fault.message == f"`{key}` of `Resources` is not supported: it is for deployments"


def test_all_faults_at_once() -> None:
    found = faults(
        Resources, 4, gpu_count=-1, cpu_count=0, memory="1G", gpuu=1, use_busy_gpus="yes"
    )
    assert len(found) == 6


def test_nothing_asked_is_a_state() -> None:
    assert Resources().empty
    assert Resources(gpu_count=None, pool_resources={}).empty
    assert not Resources(gpu_count=0).empty


@pytest.mark.parametrize(
    ("asked", "demand"),
    [
        ({}, {}),
        ({"gpu_count": 2}, {"gpu": 2}),
        ({"gpu_count": 0, "pool_resources": {"gpu": 3, "tpu": 2}}, {"tpu": 2}),
        ({"gpu_count": 1, "pool_resources": {"gpu": 3}}, {"gpu": 1}),
        ({"gpu_count": "auto", "pool_resources": {"gpu": 3}}, {"gpu": 3}),
        ({"cpu_count": 1.0005}, {"mcpu": 1001}),
        ({"cpu_count": 0.1 + 0.2}, {"mcpu": 300}),
        ({"cpu_count": 0.5}, {"mcpu": 500}),
        ({"cpu_count": 8}, {"mcpu": 8000}),
        ({"memory": "16GB"}, {"memory_mb": 16000}),
        ({"memory": "16GiB"}, {"memory_mb": 17180}),
        ({"memory": "1B"}, {"memory_mb": 1}),
    ],
)
def test_merged_resources(asked: dict[str, object], demand: dict[str, int]) -> None:
    assert Resources(**asked).merged_requested_resources() == demand  # type: ignore[arg-type]


def test_a_pool_dict_of_the_user_is_copied() -> None:
    mine = {"licence": 1}
    asked = Resources(pool_resources=mine)
    mine["licence"] = 9
    assert asked.pool_resources == {"licence": 1}


@pytest.mark.parametrize(
    ("args", "name", "path"),
    [
        (("model", "checkpoints"), "model", "checkpoints"),
        (("checkpoints",), "checkpoints", "checkpoints"),
        (("./a/",), "a", "a"),
        (("m", "out//x/../y"), "m", "out/y"),
        (("m", Path("out/y")), "m", "out/y"),
        ((Path("out/y"),), "out/y", "out/y"),
        (("out/y", "out/y"), "out/y", "out/y"),
        (("out/y", "./out/y/"), "out/y", "out/y"),
        (("model-v1.2", "a b (2)'s [x]"), "model-v1.2", "a b (2)'s [x]"),
    ],
)
def test_artifact(args: tuple[str, ...], name: str, path: str) -> None:
    made = Artifact(*args)
    assert (made.name, made.path, str(made)) == (name, path, path)


def test_absolute_artifact_inside_the_project_becomes_relative(tmp_path: Path) -> None:
    assert Artifact("m", tmp_path / "out").path == "out"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("m", "../x"), "outside the project"),
        (("m", "/etc/x"), "outside the project"),
        (("m", "a/../../x"), "outside the project"),
        (("m", "."), "whole project"),
        (("m", "a/.."), "whole project"),
        (("m", ".gputasks"), "gputasks' own"),
        (("m", "./.gputasks/x"), "gputasks' own"),
        (("",), "must be a path"),
        (("m", 3), "must be a path"),
        (("m", "a\nb"), "control characters"),
        (("m", "a\0b"), "control characters"),
        (("m", "~/x"), "`~` is not expanded"),
        (("m", "out/*.ckpt"), "patterns are not expanded"),
        (("", "x"), "one word"),
        (("a/b", "x"), "one word"),
        (("a b", "x"), "one word"),
        (("-m", "x"), "one word"),
        ((3, "x"), "one word"),
    ],
)
def test_artifact_refused(args: tuple[str, ...], said: str) -> None:
    (fault,) = faults(Artifact, *args)
    assert said in fault.message


def test_artifact_takes_nothing_else() -> None:
    extra, unknown = faults(Artifact, "m", "x", 1, pth="y")
    assert "1 more" in extra.message
    assert unknown.hint == "did you mean `path`?"


def test_an_image_starts_from_something() -> None:
    assert Image("train", dockerfile="./images/Dockerfile").dockerfile == "images/Dockerfile"
    (fault,) = faults(Image, "train", parent="x:1", parent_image="x:1")
    assert fault.hint == "did you mean `parent_image`?"
    assert "name" in faults(Image)[0].message
    assert len(faults(Image, "a", "b", parent_image="x:1")) == 1


SPECS = [
    Artifact("m", "out"),
    Resources(gpu_count=2, pool_resources={"licence": 1}),
    Image("train", parent_image="python:3.12", requirements=["torch"], copy={"a": "/a"}),
    Image("train", dockerfile="Dockerfile", build_args={"A": "1"}),
    Run(kind="train", script="train.py", params={"lr": 0.1}, artifacts=(Artifact("m", "out"),)),
    NodeSpec("hal", gpus=(0, 1)),
]


@pytest.mark.parametrize("made", SPECS, ids=lambda s: type(s).__name__)
def test_specs_are_frozen_and_travel(made: object) -> None:
    name = dataclasses.fields(made)[0].name  # type: ignore[arg-type]
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(made, name, "x")
    with pytest.raises(dataclasses.FrozenInstanceError):
        delattr(made, name)
    for twin in (pickle.loads(pickle.dumps(made)), copy.deepcopy(made), dataclasses.replace(made)):  # type: ignore[type-var]
        assert twin == made
        assert repr(twin) == repr(made)
    assert made != 3
    assert set(dataclasses.asdict(made)) == {f.name for f in dataclasses.fields(made)}  # type: ignore[arg-type, call-overload]


def test_specs_compare_by_fields() -> None:
    assert Artifact("m", "out") == Artifact("m", "./out")
    assert Artifact("m", "out") != Artifact("n", "out")
    assert len({Artifact("m", "out"), Artifact("m", "out/")}) == 1
    assert Run(kind="train") != Run(kind="command")
    assert Run("train").with_options(script="a.py") == Run(kind="train", script="a.py")


def test_a_run_of_wrong_fields_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="missing"):
        Run()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="has no `scrpt`"):
        Run(kind="train", scrpt="x")  # type: ignore[call-arg]


def test_signatures_can_be_read() -> None:
    """Editors show them: the keys of a TOML table are the parameters of the call."""
    named = {f.name for f in dataclasses.fields(Resources)}
    assert named < set(inspect.signature(Resources).parameters)


def test_unknown_word() -> None:
    import gputasks.specs

    with pytest.raises(AttributeError, match="has no `Nodes`"):
        gputasks.specs.Nodes  # noqa: B018


def test_a_run_that_is_up_to_date_loads_little() -> None:
    """Each of these costs milliseconds on every start of doit."""
    code = (
        "import sys; from gputasks.settings.runs import command_run; from gputasks.specs import Artifact\n"
        "command_run(['a'], (), {'artifacts': [Artifact('m', 'x')], 'max_duration': '2h',"
        " 'resources': {'memory': '4GB'}})\n"
        "print([m for m in ('difflib', 'decimal', 'shlex', 'tomli', 'glob', 'subprocess', 'gputasks.inventory')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
