"""What `gt.train` and `gt.command` accept, refuse, and how they say it."""

from __future__ import annotations

import enum
import math
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gputasks.errors import ConfigError, ManyErrors, render
from gputasks.settings.environment import secret_names
from gputasks.settings.runs import command_run, train_run
from gputasks.specs import Artifact, Image, Resources, Run


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "my proj (v2)'s [x]"
    (root / "src").mkdir(parents=True)
    (root / "data").mkdir()
    for name in ("train.py", "src/train.py", "data/a.csv"):
        (root / name).write_text("")
    monkeypatch.chdir(root)
    return root


def train(script: object = "train.py", *extra: object, **keys: object) -> Run:
    return train_run(script, extra, keys)


def command(argv: object, *extra: object, **keys: object) -> Run:
    return command_run(argv, extra, keys)


def faults(call: object, *args: object, **keys: object) -> list[ConfigError]:
    with pytest.raises(ConfigError) as caught:
        call(*args, **keys)  # type: ignore[operator]
    assert isinstance(caught.value, ValueError)
    return list(caught.value.faults) if isinstance(caught.value, ManyErrors) else [caught.value]


def fault(call: object, *args: object, **keys: object) -> ConfigError:
    (one,) = faults(call, *args, **keys)
    return one


# ---- trainings


def test_the_example_of_the_readme() -> None:
    run = train(
        "train.py",
        params={"max_epochs": 3, "lr": 1e-3},
        args=[],
        file_dep=["data/mnist.npz"],
        artifacts=[Artifact("model", "checkpoints")],
        nproc_per_node=2,
        resources=Resources(gpu_count="auto", cpu_count=2, memory="4GB"),
        env={"WANDB_MODE": "offline"},
        max_duration="2h",
    )
    assert run == Run(
        kind="train",
        script="train.py",
        params={"max_epochs": 3, "lr": 0.001},
        file_dep=("data/mnist.npz",),
        artifacts=(Artifact("model", "checkpoints"),),
        nproc_per_node=2,
        resources=Resources(gpu_count="auto", cpu_count=2, memory="4GB"),
        env={"WANDB_MODE": "offline"},
        max_duration_s=7200.0,
    )


def test_every_key() -> None:
    run = train(
        Path("src") / "train.py",
        params_style="key=value",
        args=["+trainer=ddp", Path("x y"), "{resume}"],
        python=".venv/bin/python",
        cwd="src/",
        stop_grace="1m",
        stall_timeout="off",
        retries=2,
        cache=False,
        resume=False,
        name="large",
        doc="A large one.",
        launcher="local",
        nodes=None,
        image=None,
        params=None,
    )
    assert run.script == "src/train.py"
    assert run.args == ("+trainer=ddp", "x y", "{resume}")
    assert (run.python, run.cwd) == (".venv/bin/python", "src")
    assert (run.stop_grace_s, run.stall_timeout_s) == (60.0, None)
    assert (run.retries, run.cache, run.resume) == (2, False, False)
    assert (run.name, run.doc, run.params_style) == ("large", "A large one.", "key=value")


@pytest.mark.parametrize(
    ("asked", "got"),
    [
        (None, Resources(gpu_count="auto")),
        (Resources(), Resources(gpu_count="auto")),
        (Resources(cpu_count=2), Resources(gpu_count="auto", cpu_count=2)),
        (Resources(gpu_count=0), Resources(gpu_count=0)),
        ({"gpu_count": 2, "memory": "4GB"}, Resources(gpu_count=2, memory="4GB")),
    ],
)
def test_a_training_asks_for_gpus_unless_it_says_otherwise(asked: object, got: Resources) -> None:
    assert train(resources=asked).resources == got


def test_a_command_asks_for_nothing() -> None:
    assert command(["true"]).resources.empty
    assert command(["true"], resources=Resources(cpu_count=1)).resources.gpu_count is None


def test_positional_arguments_are_refused() -> None:
    one = fault(train, "train.py", {"lr": 1}, 2)
    assert one.message == "`gt.train` takes one positional argument, the script; got 2 more"
    assert "got 1 more" in fault(command, ["true"], "x").message


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("parms", "did you mean `params`?"),
        ("artefacts", "did you mean `artifacts`?"),
        ("nproc", "did you mean `nproc_per_node`?"),
        ("max_time", "did you mean `max_duration`?"),
        ("xyz", "valid: `args`, `artifacts`"),
        ("targets", "outputs are `artifacts=[…]`"),
        ("timeout", "the limit is `max_duration=`"),
        ("gpu_count", "GPUs are asked for by `resources=gt.Resources(gpu_count=…)`"),
        ("on_success", "valid: "),
    ],
)
def test_unknown_keys(key: str, hint: str) -> None:
    one = fault(train, **{key: 1})
    assert one.message == f"unknown key `{key}` of `gt.train`"
    assert one.hint.startswith(hint)


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        (
            "launcher",
            "slurm",
            "`launcher=` is not supported yet: other ways to start workers than `local`",
        ),
        ("nodes", ["a", "b"], "`nodes=` is not supported yet: training on several nodes"),
    ],
)
def test_what_a_later_version_brings_is_refused_in_one_line(
    key: str, value: object, line: str
) -> None:
    assert render(fault(train, **{key: value})) == f"error: {line}"


def test_all_faults_of_a_call_at_once_each_with_the_place() -> None:
    with pytest.raises(ManyErrors) as caught:
        train_run(
            "trian.py",
            (),
            {"parms": {}, "nproc_per_node": 0, "env": {"RANK": "0"}, "resources": {"gpu": 1}},
            place="gputasks.toml:3",
        )
    assert len(caught.value.faults) == 5
    assert {f.place for f in caught.value.faults} == {"gputasks.toml:3"}


# ---- scripts


def test_missing_script_names_the_nearest() -> None:
    one = fault(train, "src/trian.py")
    assert (one.message, one.hint) == (
        "script `src/trian.py` is missing",
        "did you mean `src/train.py`?",
    )


def test_missing_script_in_a_missing_folder(project: Path) -> None:
    one = fault(train, "scr/train.py")
    assert one.facts == (f"there is no folder `scr` in {project}",)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("src", "is a folder"),
        ("../train.py", "outside the project"),
        ("/usr/lib/train.py", "outside the project"),
        ("~/train.py", "`~` is not expanded"),
        ("", "must be a path"),
        (None, "must be a path"),
        (3, "must be a path"),
        ("a\0.py", "control characters"),
    ],
)
def test_script_refused(script: object, said: str) -> None:
    assert said in fault(train, script).message


def test_script_has_one_spelling(project: Path) -> None:
    for spelt in ("./src//train.py", project / "src/train.py", "data/../src/train.py"):
        assert train(spelt).script == "src/train.py"


def test_the_script_is_not_parsed_here() -> None:
    Path("broken.py").write_text("def (")
    assert train("broken.py").script == "broken.py"


# ---- inputs and outputs


def test_inputs_have_one_spelling(project: Path) -> None:
    given_paths = [
        "./x//y/",
        project / "data",
        "/etc/hosts",
        "../shared",
        Artifact("m", "out"),
        "data",
        "//etc/hosts",
    ]
    assert train(file_dep=given_paths).file_dep == ("x/y", "data", "/etc/hosts", "../shared", "out")


def test_inputs_may_be_any_collection() -> None:
    assert train(file_dep=(Path(p) for p in ["a", "b"])).file_dep == ("a", "b")
    assert train(file_dep={"b", "a"}).file_dep == ("a", "b")
    assert train(file_dep=()).file_dep == ()


def test_an_input_need_not_exist_and_brackets_are_letters() -> None:
    assert train(file_dep=["out[1]/x.npz"]).file_dep == ("out[1]/x.npz",)


@pytest.mark.parametrize(
    ("path", "said", "hint"),
    [
        ("data/*.csv", "patterns are not expanded", 'glob.glob("data/*.csv")'),
        ("data/[ab].csv", "patterns are not expanded", "name the folder"),
        ("~/data", "`~` is not expanded", os.path.expanduser("~/data")),
        ("", "must be a path", ""),
        (3, "must be a path", ""),
        (b"data", "must be a path", ""),
        (".gputasks/runs", "never an input", ""),
    ],
)
def test_input_refused(path: object, said: str, hint: str) -> None:
    one = fault(train, file_dep=[path])
    assert said in one.message
    assert hint in one.hint


def test_a_file_whose_name_is_a_pattern(project: Path) -> None:
    (project / "a*b").write_text("")
    assert train(file_dep=["a*b"]).file_dep == ("a*b",)


@pytest.mark.parametrize("key", ["file_dep", "artifacts"])
@pytest.mark.parametrize("value", ["out", Path("out"), {"out": 1}, 3, b"x", Artifact("m", "out")])
def test_paths_come_as_lists(key: str, value: object) -> None:
    assert "must be a list" in fault(train, **{key: value}).message


def test_artifacts_in_every_form() -> None:
    run = train(
        artifacts=[
            "a/",
            Path("b"),
            Artifact("c", "out/c"),
            {"name": "d", "path": "out/d"},
            {"path": "e"},
        ]
    )
    assert [(a.name, a.path) for a in run.artifacts] == [
        ("a", "a"), ("b", "b"), ("c", "out/c"), ("d", "out/d"), ("e", "e"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"artifacts": ["a", "./a"]}, "two artifacts of `gt.train` have the path `a`"),
        ({"artifacts": [Artifact("m", "a"), Artifact("m", "b")]}, "two artifacts of `gt.train` have the name `m`"),
        ({"artifacts": ["a/b", "a"]}, "artifact `a/b` of `gt.train` lies inside artifact `a`"),
        ({"artifacts": ["train.py"]}, "is also the script `train.py`"),
        ({"artifacts": ["src"], "cwd": "src"}, "is also the working folder `src`"),
        ({"artifacts": ["src"], "cwd": "src/deep"}, "contains the working folder `src/deep`"),
        ({"artifacts": ["data"], "file_dep": ["data"]}, "is also the input `data`"),
        ({"artifacts": ["data"], "file_dep": ["data/a.csv"]}, "contains the input `data/a.csv`"),
        ({"artifacts": ["data/out"], "file_dep": ["data"]}, "lies inside the input `data`"),
        ({"artifacts": ["out"], "file_dep": ["."]}, "lies inside the input `.`"),
        ({"artifacts": ["."]}, "whole project"),
        ({"artifacts": ["../out"]}, "outside the project"),
        ({"artifacts": [{"nam": "a", "path": "b"}]}, "unknown key `nam` of an artifact of `gt.train`"),
        ({"artifacts": [3]}, "must be a path"),
    ],
)  # fmt: skip
def test_artifacts_refused(keys: dict[str, object], said: str) -> None:
    assert said in fault(train, **keys).message


def test_neighbours_do_not_overlap() -> None:
    assert train(
        artifacts=["data2", "train.py.out", "out-1", "out-11"], file_dep=["data"]
    ).artifacts


def test_the_program_of_a_command_is_no_output_of_it() -> None:
    assert (
        "is moved away"
        in fault(command, ["venv/bin/pip", "install", "x"], artifacts=["venv"]).message
    )


# ---- env and secrets


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("RANK", "nproc_per_node"), ("LOCAL_RANK", "nproc_per_node"), ("WORLD_SIZE", "nproc_per_node"),
        ("LOCAL_WORLD_SIZE", "nproc_per_node"), ("GROUP_RANK", "nproc_per_node"), ("NODE_RANK", "nproc_per_node"),
        ("MASTER_ADDR", "leave it out"), ("MASTER_PORT", "leave it out"), ("PET_NNODES", "leave it out"),
        ("TORCHELASTIC_ERROR_FILE", "leave it out"), ("CUDA_VISIBLE_DEVICES", "resources="),
        ("CUDA_DEVICE_ORDER", "resources="), ("GPUTASKS_EVENTS", "GPUTASKS_"),
    ],
)  # fmt: skip
def test_variables_that_gputasks_sets(name: str, hint: str) -> None:
    one = fault(train, env={name: "0"})
    assert one.message == f"`{name}` in `env` of `gt.train` is set by gputasks"
    assert hint in one.hint


def test_a_command_may_have_a_launcher_of_its_own() -> None:
    run = command(["torchrun", "train.py"], env={"MASTER_PORT": "29501", "PET_NNODES": "1"})
    assert run.env == {"MASTER_PORT": "29501", "PET_NNODES": "1"}
    assert fault(command, ["true"], env={"CUDA_VISIBLE_DEVICES": "0"})


@pytest.mark.parametrize("name", ["A-B", "1A", "", "A B", "A=B", "É", "A\0", 3, None])
def test_names_of_variables(name: object) -> None:
    assert "is no name of a variable" in fault(train, env={name: "x"}).message


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (3, 'write `"3"`'),
        (0.5, 'write `"0.5"`'),
        (True, '`"1"` or `"true"`'),
        (None, "leave it out"),
        ([1], ""),
    ],
)
def test_variables_are_texts(value: object, hint: str) -> None:
    one = fault(train, env={"N": value})
    assert "must be a text" in one.message
    assert hint in one.hint


def test_a_variable_that_no_process_could_have_is_refused_unshown() -> None:
    one = fault(train, env={"TOKEN": "hunter2\0"})
    assert "NUL" in one.message
    assert "hunter2" not in render(one)
    assert "not valid Unicode" in fault(train, env={"A": "\ud800"}).message


def test_values_stay_verbatim() -> None:
    odd = {"X": "$HOME/a b;$(id)", "Y": 'it\'s "q"\n*~%d', "Z": "", "W": "${HOME}", "P": "\udce9"}
    assert train(env=odd, args=list(odd.values())).env == odd
    assert train(args=list(odd.values())).args == tuple(odd.values())
    assert train(params=odd).params == odd
    assert command(["echo", *odd.values()]).argv == ("echo", *odd.values())


def test_references_to_secrets() -> None:
    env = {
        "WANDB_API_KEY": "${secrets.WANDB_API_KEY}",
        "URL": "https://${secrets.u_1}:${secrets.P}@x",
    }
    assert train(env=env).env == env
    assert secret_names(env["URL"]) == ("u_1", "P")
    assert secret_names("${secrets.A}${secrets.A}${secrets.b-c}${secrets.D") == ("A",)
    assert secret_names("$secrets.A ${secret.A} plain") == ()


@pytest.mark.parametrize("name", ["my-key", "", "1A", "A B", "A.B"])
def test_names_of_secrets(name: str) -> None:
    one = fault(train, env={"K": f"${{secrets.{name}}}"})
    assert "is no reference to a secret" in one.message


def test_a_reference_without_an_end() -> None:
    assert "is no reference to a secret" in fault(train, env={"K": "${secrets.A"}).message


@pytest.mark.parametrize(
    "call",
    [
        lambda: train(args=["--key", "${secrets.A}"]),
        lambda: train(params={"deep": {"key": ["x${secrets.A}"]}}),
        lambda: command(["curl", "-H", "${secrets.A}"]),
        lambda: command("curl -H ${secrets.A}", shell=True),
    ],
)
def test_no_secret_in_a_command_line(call: object) -> None:
    one = fault(call)
    assert "`ps` shows command lines" in one.message
    assert one.hint == 'give it as a variable: `env={"A": "${secrets.A}"}`'


# ---- params


class Colour(str, enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


def test_params_are_copied_deeply() -> None:
    mine: dict[str, object] = {"l": [1, {"a": [2]}], "t": (1, (2,))}
    run = train(params=mine)
    mine["l"][1]["a"].append(3)  # type: ignore[index]
    mine["new"] = 1
    assert run.params == {"l": [1, {"a": [2]}], "t": [1, [2]]}


def test_params_become_plain() -> None:
    numpy = pytest.importorskip("numpy")
    run = train(params={"c": Colour.RED, "l": Level.LOW, "p": Path("a/b"), "f": numpy.float64(0.1), "s": numpy.str_("x"), "m": Artifact("m", "out")})  # fmt: skip
    assert run.params == {"c": "red", "l": 1, "p": "a/b", "f": 0.1, "s": "x", "m": "out"}
    assert [type(v) for v in run.params.values()] == [str, int, str, float, str, str]


def test_params_keep_types_apart() -> None:
    values = {
        "a": 1,
        "b": 1.0,
        "c": "1",
        "d": True,
        "e": None,
        "f": False,
        "g": math.inf,
        "h": "",
        "i": [],
        "j": {},
    }
    assert [(k, type(v), v) for k, v in train(params=values).params.items()] == [
        (k, type(v), v) for k, v in values.items()
    ]
    assert math.isnan(train(params={"x": math.nan}).params["x"])


@pytest.mark.parametrize(
    ("value", "said", "hint"),
    [
        (object(), "`params.x` of `gt.train` is a builtins.object", "None, booleans"),
        ({1, 2}, "is a builtins.set", "sorted"),
        (b"x", "is a builtins.bytes", ""),
        (1j, "is a builtins.complex", ""),
        (lambda: 1, "is a builtins.function", ""),
        ("a\0", "NUL", ""),
        ("\ud800", "not valid Unicode", ""),
        pytest.param(10**5000, "too many digits", "", id="huge"),
        ("{resume}", "is replaced in `args` only", '`args=["--x", "{resume}"]`'),
        (["-x"], "would be read as a flag", 'params_style="none"'),
        ({"a=b": 1}, "no name of a param", ""),
        ({3: 1}, "no name of a param", ""),
    ],
)
def test_param_refused(value: object, said: str, hint: str) -> None:
    one = fault(train, params={"x": value})
    assert said in one.message
    assert hint in one.hint


def test_scalars_of_numpy_say_how_to_be_plain() -> None:
    numpy = pytest.importorskip("numpy")
    assert fault(train, params={"n": numpy.int64(3)}).hint == "`.item()` gives the plain number"
    assert "numpy.float32" in fault(train, params={"n": numpy.float32(3)}).message
    assert "tolist" in fault(train, params={"n": numpy.zeros(3)}).hint


@pytest.mark.parametrize("key", ["", "-x", "--x", "a=b", "a b", "a\nb", "a\0b", 3, None])
def test_names_of_params(key: object) -> None:
    assert "no name of a param" in fault(train, params={key: 1}).message


def test_params_that_hold_themselves() -> None:
    endless: list[object] = []
    endless.append(endless)
    assert "nested too deeply" in fault(train, params={"x": endless}).message


@pytest.mark.parametrize("value", [[], "x", 3, [("a", 1)]])
def test_params_are_a_table(value: object) -> None:
    assert "must be a table" in fault(train, params=value).message


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.from_regex(r"[a-z]{1,5}", fullmatch=True), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.from_regex(r"[a-z]{1,5}", fullmatch=True), plain, max_size=4))
def test_plain_params_come_out_as_they_went_in(params: dict[str, object]) -> None:
    assert train(params=params, params_style="none").params == params


# ---- other values


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("nproc_per_node", "auto"), ("nproc_per_node", 0), ("nproc_per_node", True), ("nproc_per_node", 2.0),
        ("nproc_per_node", 10**30), ("retries", -1), ("retries", True), ("retries", "3"), ("cache", 1), ("cache", "no"),
        ("resume", "yes"), ("max_duration", "2"), ("max_duration", 0), ("max_duration", True), ("max_duration", "2 hours"),
        ("max_duration", [1]), ("stop_grace", "off"), ("stop_grace", "0s"), ("stall_timeout", "never"),
        ("params_style", "flag"), ("params_style", 3), ("args", "--x"), ("args", [1]), ("args", ["a\0b"]), ("args", {"a": 1}),
        ("env", ["A=b"]), ("resources", 3), ("resources", "2 gpus"), ("python", ""), ("python", 3), ("python", "~/bin/python"),
        ("cwd", "train.py"), ("cwd", "~"), ("cwd", 3), ("name", ""), ("name", "a=b"), ("name", "-x"), ("name", "a b"),
        ("name", "a:b"), ("name", 3), ("doc", 3),
    ],
)  # fmt: skip
def test_one_fault_that_names_its_key(key: str, value: object) -> None:
    assert f"`{key}`" in fault(train, **{key: value}).message


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["script", "params", "params_style", "args", "file_dep", "artifacts", "nproc_per_node", "resources",
                     "env", "python", "cwd", "max_duration", "stop_grace", "stall_timeout", "retries", "cache",
                     "resume", "name", "doc", "launcher", "nodes", "image", "whatever"]),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=3),
        lambda inner: st.lists(inner, max_size=2) | st.tuples(inner) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
        max_leaves=4,
    ),
)  # fmt: skip
def test_any_value_of_any_key_is_taken_or_told(key: str, value: object) -> None:
    for call in (
        lambda: train(value) if key == "script" else train(**{key: value}),
        lambda: command(value) if key == "script" else command(["true"], **{key: value}),
    ):
        try:
            assert isinstance(call(), Run)
        except ConfigError as error:
            text = render(error)
            assert text.startswith("error: ")
            assert not text.splitlines()[0].endswith(".")


# ---- commands


def test_a_command() -> None:
    run = command(
        ["python", Path("prep.py"), "--n", "3"],
        file_dep=["data"],
        artifacts=["out.npz"],
        python="python3",
    )
    assert run == Run(
        kind="command",
        argv=("python", "prep.py", "--n", "3"),
        file_dep=("data",),
        artifacts=(Artifact("out.npz"),),
        python="python3",
        stall_timeout_s=None,
    )


@pytest.mark.parametrize("argv", ["a | b > 'c d'", ["a | b > 'c d'"]])
def test_shell_text(argv: object) -> None:
    run = command(argv, shell=True)
    assert (run.shell, run.argv) == (True, ("a | b > 'c d'",))


@pytest.mark.parametrize(
    ("argv", "said"),
    [([], "is empty"), ((), "is empty"), ([""], "empty text"), ({}, "must be a list"), (None, "must be a list"),
     (["a", 3], "list of texts only"), (["a", None], "list of texts only"), (["a", "b\0"], "NUL"), (3, "must be a list")],
)  # fmt: skip
def test_command_refused(argv: object, said: str) -> None:
    assert said in fault(command, argv).message


def test_numbers_show_the_quoted_form() -> None:
    assert fault(command, ["head", "-n", 3]).hint == 'write `"3"`'


@pytest.mark.parametrize("argv", ["", "  ", [], ["a", "b"], 3, None, "a\0", [""]])
def test_shell_text_refused(argv: object) -> None:
    assert len(faults(command, argv, shell=True)) == 1


def test_a_text_is_no_list() -> None:
    one = fault(command, "echo 'a b' | cat")
    assert "takes a list, not the text" in one.message
    assert one.facts == ('as a list: ["echo", "a b", "|", "cat"]',)
    assert "shell=True" in one.hint
    assert not fault(command, "echo 'a").facts


@pytest.mark.parametrize("hook", ["on_start", "on_end", "on_success", "on_failure"])
def test_no_hooks_on_commands(hook: str) -> None:
    assert (
        fault(command, ["true"], **{hook: print}).message
        == f"hooks are not possible on a command: `{hook}`"
    )


@pytest.mark.parametrize(
    "key", ["params", "params_style", "args", "nproc_per_node", "stall_timeout"]
)
def test_keys_of_trainings_on_commands(key: str) -> None:
    one = fault(command, ["true"], **{key: {}})
    assert one.message == f"unknown key `{key}` of `gt.command`"
    assert "is for trainings" in one.hint


def test_an_image_has_its_own_requirements() -> None:
    one = fault(train, image="a:1", requirements=["numpy"])
    assert one.message == "`requirements` of `gt.train` are not installed in an image"


def test_nodes_for_commands() -> None:
    assert fault(command, ["true"], nodes=["a"]).message.startswith("`nodes=` is not supported yet")


@pytest.mark.parametrize(
    "image",
    [
        "python:3.12",
        "localhost:5000/team/cuda_x-y:2.1-slim",
        f"registry.example/nvidia/pytorch@sha256:{'0' * 64}",
        Image("train", parent_image="python:3.12"),
    ],
)
def test_images_that_say_which_one(image: object) -> None:
    assert train("train.py", image=image).image == image
    assert command(["true"], image=image).image == image


@pytest.mark.parametrize(
    ("image", "text"),
    [
        ("python", "does not say which one"),
        ("localhost:5000/train", "does not say which one"),
        (["a:1", "b:1"], "a task runs in one image"),
        ("Not An Image", "must be a `gt.Image` or the reference"),
        ("--privileged:1", "must be a `gt.Image` or the reference"),
        (3, "must be a `gt.Image` or the reference"),
    ],
)
def test_images_that_do_not(image: object, text: str) -> None:
    assert text in fault(train, image=image).message
