"""Params as words: what argparse reads back is what was written."""

from __future__ import annotations

import argparse
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputasks.settings.flags import inexpressible, param_argv, resolve_resume


@pytest.mark.parametrize(
    ("params", "argv"),
    [
        ({"max_epochs": 3, "lr": 1e-3}, ["--max_epochs", "3", "--lr", "0.001"]),
        ({"trainer.max-epochs": 3}, ["--trainer.max-epochs", "3"]),
        ({"a": True, "b": False, "c": None}, ["--a"]),
        ({"n": -1}, ["--n=-1"]),
        ({"x": -1e-5}, ["--x=-1e-05"]),
        ({"s": "-x y"}, ["--s=-x y"]),
        ({"s": "--"}, ["--s=--"]),
        ({"s": ""}, ["--s", ""]),
        ({"s": "%d $HOME 'a' \"b\"\n*~"}, ["--s", "%d $HOME 'a' \"b\"\n*~"]),
        ({"l": [1, 2.5, "x"]}, ["--l", "1", "2.5", "x"]),
        ({"l": []}, ["--l"]),
        (
            {"l": [-1, -0.5, -1e-5, -1e17]},
            ["--l", "-1", "-0.5", "-0.00001", "-100000000000000000.0"],
        ),
        ({"l": [True, None, [1, 2], {"a": 1}]}, ["--l", "true", "null", "[1,2]", '{"a":1}']),
        (
            {"opt": {"lr": 0.1, "b": {"c": [1]}, "off": False}},
            ["--opt.lr", "0.1", "--opt.b.c", "1"],
        ),
        ({"x": math.inf, "y": -math.inf, "z": math.nan}, ["--x", "inf", "--y=-inf", "--z", "nan"]),
    ],
)
def test_flags(params: dict[str, object], argv: list[str]) -> None:
    assert param_argv(params, "flags") == argv


def test_one_number_one_text() -> None:
    assert param_argv({"lr": 1e-5}, "flags") == param_argv({"lr": 0.00001}, "flags")
    assert [param_argv({"x": v}, "flags")[1] for v in (1, 1.0, "1")] == ["1", "1.0", "1"]
    assert [param_argv({"x": v}, "key=value")[0] for v in (1, 1.0, "1")] == [
        "x=1",
        "x=1.0",
        "x='1'",
    ]


def test_none_passes_nothing() -> None:
    assert param_argv({"lr": 1}, "none") == []


# Each right side was read back with hydra-core 1.3's own parser.
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"), (1e-5, "1e-05"), (-math.inf, "-inf"), (True, "true"), (False, "false"), (None, "null"),
        ("data/x-1.npz", "data/x-1.npz"), ("", "''"), ("a b", "'a b'"), ("3", "'3'"), ("true", "'true'"),
        ("Null", "'Null'"), ("nan", "'nan'"), ("1e-5", "'1e-5'"), ("-x", "'-x'"), ("it's", r"'it\'s'"),
        ("a\\b", r"'a\b'"), ("a\\", r"'a\\'"), (r"a\'b", r"'a\\\'b'"), ("a\nb", "'a\nb'"), ("é", "'é'"),
        ("a,b", "'a,b'"), ("${now:%Y}", "'${now:%Y}'"), ([1, "a b", None], "[1,'a b',null]"), ([], "[]"),
        ({}, "{}"), ({"a": 1, "b.c": {"d": [True]}}, "{a:1,b.c:{d:[true]}}"),
    ],
)  # fmt: skip
def test_hydra(value: object, text: str) -> None:
    assert param_argv({"+k.x": value}, "key=value") == [f"+k.x={text}"]


@pytest.mark.parametrize(
    ("params", "style", "keys"),
    [
        ({"l": ["-x"]}, "flags", ["l"]),
        ({"l": ["--"]}, "flags", ["l"]),
        ({"l": [-math.inf]}, "flags", ["l"]),
        ({"a": {"l": ["-x", "-1."]}}, "flags", ["a.l", "a.l"]),
        ({"l": [-1, -0.5, -1e-300, "x-y", ""], "s": "-x"}, "flags", []),
        ({"l": ["-x"]}, "none", []),
        ({"l": ["-x"]}, "key=value", []),
        ({"a": {"3": 1}}, "key=value", ["a"]),
        ({"a": [[{"true": {"b:c": 1}}]]}, "key=value", ["a", "a"]),
        ({"a": {"3": 1}}, "flags", []),
    ],
)
def test_what_a_style_cannot_say(params: dict[str, object], style: str, keys: list[str]) -> None:
    assert [key for key, _ in inexpressible(params, style)] == keys  # type: ignore[arg-type]


names = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_.-]{0,8}", fullmatch=True)
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@given(
    st.dictionaries(
        names, st.one_of(st.integers(), st.floats(allow_nan=False), texts, st.just(True))
    ),
    st.dictionaries(
        names, st.lists(st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False)))
    ),
)
def test_argparse_reads_back_what_was_written(
    params: dict[str, object], lists: dict[str, list[float]]
) -> None:
    parser = argparse.ArgumentParser(
        allow_abbrev=False, add_help=False, argument_default=argparse.SUPPRESS
    )
    both = {f"a.{k}": v for k, v in params.items()} | {f"b.{k}": v for k, v in lists.items()}
    for key, value in both.items():
        if value is True:
            parser.add_argument(f"--{key}", action="store_true", dest=key)
        elif isinstance(value, list):
            parser.add_argument(f"--{key}", nargs="*", type=json.loads, dest=key)
        else:
            parser.add_argument(f"--{key}", type=type(value), dest=key)
    assert not list(inexpressible(both, "flags"))
    words = param_argv(both, "flags")
    assert vars(parser.parse_args(words)) == both


@pytest.mark.parametrize(
    ("args", "fresh", "resumed"),
    [
        (["--ckpt_path", "{resume}"], [], ["--ckpt_path", "C"]),
        (["--ckpt={resume}"], [], ["--ckpt=C"]),
        (["+ckpt={resume}"], [], ["+ckpt=C"]),
        (["--multirun", "+ckpt={resume}"], ["--multirun"], ["--multirun", "+ckpt=C"]),
        (["fit", "{resume}"], ["fit"], ["fit", "C"]),
        (["-r", "{resume}", "--x", "1"], ["--x", "1"], ["-r", "C", "--x", "1"]),
        (["--x=1", "{resume}"], ["--x=1"], ["--x=1", "C"]),
        (["--", "{resume}"], ["--"], ["--", "C"]),
        (["--a", "{resume}", "{resume}"], [], ["--a", "C", "C"]),
        (["{}", "{resume", "$resume"], ["{}", "{resume", "$resume"], ["{}", "{resume", "$resume"]),
        ([], [], []),
    ],
)
def test_resume(args: list[str], fresh: list[str], resumed: list[str]) -> None:
    assert resolve_resume(args, None) == fresh
    assert resolve_resume(args, "C") == resumed
