"""gputasks.toml: read, placed, checked as a whole."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputasks.errors import ConfigError, ManyErrors
from gputasks.settings.lines import key_lines
from gputasks.settings.project import load
from gputasks.settings.runs import command_run, train_run
from gputasks.settings.toml import read_toml
from gputasks.specs import Image, NodeSpec, Resources


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(text: str | bytes, path: str = "gputasks.toml") -> None:
    Path(path).write_bytes(text.encode() if isinstance(text, str) else text)


def faults(text: str | bytes = "", path: str = "gputasks.toml") -> list[ConfigError]:
    if text:
        write(text, path)
    with pytest.raises(ConfigError) as caught:
        load(path)
    return list(caught.value.faults) if isinstance(caught.value, ManyErrors) else [caught.value]


def fault(text: str | bytes = "", path: str = "gputasks.toml") -> ConfigError:
    (one,) = faults(text, path)
    return one


LARGE = """\
# a project
[runs.large]
script = "train.py"
params = { max_epochs = 3, lr = 1e-3, tags = ["a", "b"], deep = { on = true } }
args = ["--ckpt_path", "{resume}"]
file_dep = ["./data/mnist.npz"]
artifacts = [{ name = "model", path = "checkpoints" }]
nproc_per_node = 2
resources = { gpu_count = "auto", cpu_count = 2, memory = "4GB", pool_resources = { licence = 1 } }
env = { WANDB_MODE = "offline", X = "$HOME/a b;$(id)" }
max_duration = "2h"

[runs.prep]
command = ["python", "prep.py"]
artifacts = ["data/mnist.npz"]

[runs.pipe]
shell = "cat a | sort"
cwd = "."

[runs.pipe2]
command = "cat a | sort"
shell = true

[images.train]
parent_image = "python:3.12"

[nodes.hal]
ssh = "alice@hal:2222"
address = "10.0.0.3"
gpus = [0, 1, "MIG-1"]
python = "~/venv/bin/python"
labels = { room = "2" }
workdir = "/scratch"
price_per_gpu_hour = 1.5
ifname = "ib0"
host_key = "ssh-ed25519 AAAA"

[nodes.self]
gpus = 0

[node_pools.lab]
hosts = ["hal", "gpu[01-04]"]

[resource_pools]
licence = 2
"""


def test_a_run_from_a_file_equals_the_keyword_form() -> None:
    write(LARGE)
    found = load()
    assert found.runs["large"] == train_run(
        "train.py",
        (),
        {
            "params": {"max_epochs": 3, "lr": 1e-3, "tags": ("a", "b"), "deep": {"on": True}},
            "args": ["--ckpt_path", "{resume}"],
            "file_dep": ["data/mnist.npz"],
            "artifacts": [{"name": "model", "path": "checkpoints"}],
            "nproc_per_node": 2,
            "resources": Resources(
                gpu_count="auto", cpu_count=2, memory="4GB", pool_resources={"licence": 1}
            ),
            "env": {"WANDB_MODE": "offline", "X": "$HOME/a b;$(id)"},
            "max_duration": "2h",
        },
    )
    assert found.runs["prep"] == command_run(
        ["python", "prep.py"], (), {"artifacts": ["data/mnist.npz"]}
    )
    assert (
        found.runs["pipe"]
        == found.runs["pipe2"]
        == command_run("cat a | sort", (), {"shell": True})
    )


def test_the_rest_of_a_file() -> None:
    write(LARGE)
    found = load()
    assert found.images == {"train": Image("train", parent_image="python:3.12")}
    assert found.nodes == {
        "hal": NodeSpec(
            "hal", "alice@hal:2222", "10.0.0.3", (0, 1, "MIG-1"), "~/venv/bin/python", {"room": "2"},
            "/scratch", 1.5, "ib0", "ssh-ed25519 AAAA",
        ),
        "self": NodeSpec("self", gpus=0),
    }  # fmt: skip
    assert found.node_pools == {"lab": ("hal", "gpu[01-04]")}
    assert found.resource_pools == {"licence": 2}
    assert pickle.loads(pickle.dumps(found)) == found


def test_a_name_that_is_not_there() -> None:
    write(LARGE)
    found = load()
    with pytest.raises(ConfigError, match=r"no run `larg` in `gputasks\.toml`") as caught:
        found.runs["larg"]
    assert caught.value.hint == "did you mean `large`?"
    assert "larg" not in found.runs
    with pytest.raises(ConfigError):
        pickle.loads(pickle.dumps(found)).nodes["hall"]


def test_numbers_keep_their_types() -> None:
    write(
        '[runs.a]\nscript = "train.py"\n[runs.a.params]\na = 1\nb = 1.0\nc = "1"\nd = 1e-5\ne = 0.00001\nf = inf\n'
    )
    params = load().runs["a"].params
    assert [type(params[k]) for k in "abc"] == [int, float, str]
    assert params["d"] == params["e"]
    assert params["f"] == float("inf")


# ---- where the file is


def test_pyproject_where_there_is_no_file_of_our_own() -> None:
    write(
        '[project]\nname = "x"\n[tool.gputasks.runs.a]\nscript = "train.py"\nretries = -1\n',
        "pyproject.toml",
    )
    one = fault()
    assert one.place == "pyproject.toml:5"
    write('[tool.gputasks.runs.a]\nscript = "train.py"\n', "pyproject.toml")
    assert list(load().runs) == list(load("pyproject.toml").runs) == ["a"]
    assert load().path == "pyproject.toml"


def test_no_file_at_all(project: Path) -> None:
    one = fault()
    assert one.message == "`gputasks.toml` is missing"
    assert one.facts == (f"looked in: {project}",)
    assert fault(path="other.toml").message == "`other.toml` is missing"


def test_a_misspelt_table_of_pyproject() -> None:
    write('[tool.gputask.runs.a]\nscript = "train.py"\n', "pyproject.toml")
    assert fault().hint == "write `[tool.gputasks]`, not `[tool.gputask]`"
    assert fault(path="pyproject.toml").message == "`pyproject.toml` has no `[tool.gputasks]`"


def test_two_files_are_one_too_many() -> None:
    write("[tool.gputasks.runs]\n", "pyproject.toml")
    one = fault("[runs]\n")
    assert "both define the project" in one.message
    assert one.place == "pyproject.toml:1"


def test_a_pyproject_of_somebody_else_is_left_alone() -> None:
    write("[tool.black]\nx = [\n", "pyproject.toml")  # not even TOML
    write("")
    assert load().runs == {}


def test_a_folder_is_no_file(project: Path) -> None:
    (project / "gputasks.toml").mkdir()
    assert fault().message == "`gputasks.toml` cannot be read: Is a directory"


# ---- what is no TOML


def test_bom_and_windows_line_ends() -> None:
    write(b"\xef\xbb\xbf" + LARGE.replace("\n", "\r\n").encode())
    assert load().runs["large"].params["max_epochs"] == 3
    one = fault(b"\xef\xbb\xbf[runs.a]\r\nscript = 'train.py'\r\nretries = -1\r\n")
    assert one.place == "gputasks.toml:3"


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
def test_not_utf8(start: bytes) -> None:
    one = fault(start + b"[runs.a]\nscript = 'caf\xe9.py'\n")
    assert one.place == "gputasks.toml:2"
    assert one.facts == (f"byte 0xe9 at offset {22 + len(start)}",)
    assert "UTF-16" in fault("[runs]\n".encode("utf-16")).message


@pytest.mark.parametrize(
    ("text", "line", "hint"),
    [
        ("[runs.a]\nscript = \n", 2, ""),
        ("[runs.a\n", 1, ""),
        ("[runs.a]\n\nresume = True\n", 3, "write `true`"),
        ("[runs.a]\nname = None\n", 2, "TOML has no None: leave the key out"),
        ("a = 'x\n", 2, ""),  # tomli tells the end of the file here
        ("x = 2024-13-45\n", 1, ""),
        ("a = 1 b = 2\n", 1, ""),
        ("a = [\n1,\n", 3, ""),
        ("\0", 1, ""),
    ],
)
def test_broken_syntax(text: str, line: int, hint: str) -> None:
    one = fault(text)
    assert one.message.startswith("`gputasks.toml` is not valid TOML: ")
    assert one.place == f"gputasks.toml:{line}"
    assert one.hint == hint


@pytest.mark.parametrize("text", ["x = " + "[" * 20000, "x = " + "9" * 5000, "[" * 5000])
def test_absurd_files(text: str) -> None:
    assert "gputasks.toml" in fault(text).message


@pytest.mark.parametrize(
    ("text", "names", "first", "again"),
    [
        ('[runs.a]\nx = 1\n\n[runs."a"]\n', ("[runs.a]", '[runs."a"]'), 1, 4),
        ("[runs.a]\nlr = 1\n'lr' = 2\n", ("lr", "'lr'"), 2, 3),
        ("a.b = 1\na . b = 2\n", ("a.b", "a . b"), 1, 2),
        ("a = 1\n[a]\n", ("a", "[a]"), 1, 2),
        ("[a]\nb.c = 1\nb.c = 2\n", ("b.c", "b.c"), 2, 3),
        ("x = '''\ny = 1\n'''\ny = 1\ny = 2", ("y", "y"), 4, 5),
    ],
)
def test_twice(text: str, names: tuple[str, str], first: int, again: int) -> None:
    one = fault(text)
    assert one.message == f"`{names[1]}` is defined twice"
    assert one.facts == (f"first as `{names[0]}` at gputasks.toml:{first}",)
    assert one.place == f"gputasks.toml:{again}"


@pytest.mark.parametrize(
    "text", ["a = {b = 1, b = 2}", "[a.b]\nx = 1\n[a]\nb.x = 2", "[[a]]\n[a]\n"]
)
def test_twice_in_ways_only_the_parser_sees(text: str) -> None:
    assert re.fullmatch(r"gputasks\.toml:\d", fault(text).place)


# ---- where a key stands


def test_lines_of_keys() -> None:
    text = """\
top = 1
[a.b]      # [not.this]
c = '''
d = 1
'''
"e f" = [
  1, # ] "
  { g = 2 },
]
h.i = {
  j = 1
}
[[n]]
x = 1
[n.sub]
y = 2
[[n]]
x = 3
 [ z . "\\u0041" ]
k="a # b\\" = 'c'"
"""
    lines = key_lines(text)
    expected = {
        ("top",): 1, ("a",): 2, ("a", "b"): 2, ("a", "b", "c"): 3, ("a", "b", "d"): 2, ("a", "b", "e f"): 6,
        ("a", "b", "e f", "1", "g"): 6, ("a", "b", "h"): 10, ("a", "b", "h", "i", "j"): 10, ("n",): 13,
        ("n", "0", "x"): 14, ("n", "0", "sub", "y"): 16, ("n", "1", "x"): 18, ("z", "A"): 19, ("z", "A", "k"): 20,
    }  # fmt: skip
    assert {path: lines.line(path) for path in expected} == expected
    assert lines.line(("nope",)) is None
    assert lines.again == []


@given(st.text(st.sampled_from("ab.=[]{}\"'#\\\n\r\t ,1\0é"), max_size=60))
def test_lines_of_anything(text: str) -> None:
    lines = key_lines(text)
    assert all(1 <= spot.line <= text.count("\n") + 1 for spot in lines.first.values())


key = st.from_regex(r"[a-z]{1,4}", fullmatch=True)


@given(
    st.dictionaries(
        key, st.dictionaries(key, st.text(max_size=4) | st.integers(), max_size=4), max_size=4
    )
)
def test_every_key_of_a_file_is_found(tables: dict[str, dict[str, object]]) -> None:
    written: list[str] = []
    expected = {}
    for table, content in tables.items():
        written.append(f"[{table}]")
        expected[(table,)] = len(written)
        for name, value in content.items():
            quoted = (
                "".join(f"\\u{ord(c):04x}" if ord(c) < 65536 else "?" for c in value)
                if isinstance(value, str)
                else ""
            )
            written.append(
                f'{name} = "{quoted}"' if isinstance(value, str) else f"{name} = {value}"
            )
            expected[(table, name)] = len(written)
    lines = key_lines("\n".join(written))
    assert {path: spot.line for path, spot in lines.first.items()} == expected


# ---- what is wrong in it


def test_all_faults_of_a_file_at_once_each_with_its_line() -> None:
    found = faults("""\
[run.a]
[runs.large]
script = "trian.py"
parms = {}
[runs.large.params]
when = 2024-01-01
"a=b" = 1
[runs.large.resources]
gpu = 4
pool_resources = { licens = 1 }
[runs.large.env]
RANK = "0"
N = 3
[[runs.large.artifacts]]
name = "m"
path = "../x"
[runs.b]
scirpt = "train.py"
[runs.c]
[runs.d]
script = "train.py"
command = ["true"]
[runs.e]
command = []
on_success = "x"
[runs."f g"]
script = "train.py"
[images.t]
requirements = ["torch"]
[nodes.hal]
adress = "10.0.0.1"
address = "hal"
ssh = "-oProxyCommand=x"
gpus = [0, true]
[node_pools.lab]
hosts = []
[resource_pools]
licence = 0
""")
    told = {(int(f.place.split(":")[1]), f.message.split(":")[0]) for f in found}
    assert told == {
        (1, "unknown key `run` of `gputasks.toml`"),
        (3, "script `trian.py` is missing"),
        (4, "unknown key `parms` of run `large`"),
        (6, "`params.when` of run `large` is a datetime.date, which params cannot hold"),
        (5, "`'a=b'` in `params` of run `large` is no name of a param"),
        (9, "unknown key `gpu` of `resources` of run `large`"),
        (10, "run `large` asks for pool `licens`, which is not there"),
        (12, "`RANK` in `env` of run `large` is set by gputasks"),
        (13, "`N` in `env` of run `large` must be a text, not `3`"),
        (14, "artifact `../x` is outside the project"),
        (18, "unknown key `scirpt` of run `b`"),
        (19, "run `c` says nothing to run"),
        (22, "run `d` has both `script` and `command`"),
        (24, "the command of run `e` is empty"),
        (25, "hooks are not possible on a command"),
        (26, "`f g` is no name for a run"),
        (28, "image `t` has nothing to start from"),
        (31, "unknown key `adress` of node `hal`"),
        (32, "`address` of node `hal` must be a numeric address, not `'hal'`"),
        (33, "`ssh` of node `hal` must be an ssh destination, `alias` or `user@address"),
        (34, "`gpus` of node `hal` must be a count, or a list of indices and `GPU-…` or `MIG-…` names, not `True`"),
        (36, "`hosts` of node pool `lab` must be a list of nodes, not `[]`"),
        (38, "`licence` of `resource_pools` of `gputasks.toml` must be a whole number from 1 to 1000000000, not `0`"),
    }  # fmt: skip
    assert next(f for f in found if "scirpt" in f.message).hint == "did you mean `script`?"
    assert next(f for f in found if "`run`" in f.message).hint == "did you mean `runs`?"


@pytest.mark.parametrize(
    "text",
    ["runs = 1", "runs = []", "[[runs.a]]\nscript = 'train.py'", "runs.a = 'train.py'", "images = 'x'", "nodes = 1",
     "node_pools.a = 1", "resource_pools = 3", "[runs.a]\nscript = ['train.py']", "[runs.a]\nresources.x.y = 1\nscript = 'train.py'",
     "[nodes.a]\nlabels = 1", "[nodes.a]\nlabels = {x = 1}", "[nodes.a]\nlabels = {'' = 'x'}", "[nodes.a]\nprice_per_gpu_hour = -1",
     "[nodes.a]\nhost_key = 'x'", "[nodes.a]\ngpus = [1, 1]", "[nodes.a]\ngpus = 1.5", "[node_pools.a]\nhosts = ['a', 'a']",
     "[node_pools.a]\nhosts = ['-x']", "[node_pools.a]\nhosts = [1]", "[runs.'']\nscript = 'train.py'", "[runs.a]\nlauncher = 'ray'\nscript = 'train.py'",
     "[runs.a]\nshell = 'true'\ncommand = ['x']", "[runs.a]\nshell = false\ncommand = 'x'",
     "[resource_pools]\na = 1\n[runs.a]\nscript = 'train.py'\nresources.pool_resources.a = 2"],
)  # fmt: skip
def test_one_fault_with_its_place(text: str) -> None:
    one = fault(text)
    assert re.fullmatch(r"gputasks\.toml(:\d)?", one.place)


def test_free_nodes_are_free() -> None:
    write("[nodes.a]\nprice_per_gpu_hour = 0\n")
    assert load().nodes["a"].price_per_gpu_hour == 0


values = st.recursive(
    st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False)
    | st.text("ab./-~*\n", max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(key, inner, max_size=2),
    max_leaves=4,
)
words = st.sampled_from(["script", "command", "shell", "params", "args", "env", "resources", "artifacts", "file_dep",
                         "ssh", "gpus", "hosts", "labels", "parent_image", "retries", "x"])  # fmt: skip
tables = st.sampled_from(["runs", "images", "nodes", "node_pools", "resource_pools", "other"])


@given(
    st.dictionaries(
        tables,
        st.dictionaries(key, st.dictionaries(words, values, max_size=3) | values, max_size=2),
    )
)
def test_any_tables_are_taken_or_told(data: dict[str, object]) -> None:
    from gputasks.checks.faults import Faults
    from gputasks.settings.project import _project

    found = Faults("the file", "x.toml:1")
    _project(found, "x.toml", data)
    assert all(f.place == "x.toml:1" for f in found.found)


def test_the_parser_is_one_for_all() -> None:
    """TOML 1.1, which Python's own tomllib does not read before 3.15."""
    write("[runs.a]\nscript = 'train.py'\nparams = {\n  lr = 1,\n}\n")
    assert read_toml("gputasks.toml").data["runs"]["a"]["params"] == {"lr": 1}


def test_a_run_names_an_image_of_the_file() -> None:
    write(
        '[images.cuda]\nparent_image = "python:3.12"\n'
        '[runs.a]\ncommand = ["true"]\nimage = "cuda"\n'
        '[runs.b]\ncommand = ["true"]\nimage = "python:3.12"\nruntime = "isolated"\n'
    )
    found = load()
    assert found.runs["a"].image == found.images["cuda"]
    assert found.runs["b"].image == "python:3.12"
    write('[runs.a]\ncommand = ["true"]\nimage = "cuda"\n')
    with pytest.raises(ConfigError, match="does not say which one"):
        load()
