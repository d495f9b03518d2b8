"""Which local modules a script imports."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from gputasks.errors import ConfigError
from gputasks.fingerprint import Digests, local_imports, parsing
from gputasks.layout import Layout


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def put(name, text=""):
    os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
    with open(name, "w", encoding="utf-8") as file:
        file.write(text)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import utils", ["utils.py"]),
        ("import utils as u, other", ["other.py", "utils.py"]),
        ("from utils import f", ["utils.py"]),
        ("from utils import *", ["utils.py"]),
        ("import pkg.layers", ["pkg/__init__.py", "pkg/layers.py"]),
        ("import pkg.deep.leaf", ["pkg/__init__.py", "pkg/deep/__init__.py", "pkg/deep/leaf.py"]),
        ("from pkg import layers", ["pkg/__init__.py", "pkg/layers.py"]),
        ("from pkg import Net", ["pkg/__init__.py"]),
        ("from pkg.layers import Net", ["pkg/__init__.py", "pkg/layers.py"]),
        ("import space.mod", ["space/mod.py"]),
        ("from space import mod", ["space/mod.py"]),
        ("import space", []),
        ("import torch, numpy as np, os, json", []),
        ("import missing.module", []),
        ("def f():\n    import utils", ["utils.py"]),
        ("try:\n    import utils\nexcept ImportError:\n    import other", ["other.py", "utils.py"]),
        ("if x:\n    import utils\nelse:\n    import other", ["other.py", "utils.py"]),
        ("with a:\n  for b in c:\n    class D:\n      import utils", ["utils.py"]),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import utils", []),
        (
            "import typing\nif typing.TYPE_CHECKING:\n    import utils\nelse:\n    import other",
            ["other.py"],
        ),
        (
            "import importlib\nm = importlib.import_module('pkg.layers')",
            ["pkg/__init__.py", "pkg/layers.py"],
        ),
        ("m = __import__('utils')", ["utils.py"]),
        ("import importlib\nm = importlib.import_module(name)", []),
        ("from . import utils", ["utils.py"]),
        ("import gputasks.plan, gputasks", []),
        ("x = '''\nimport utils\n'''  # import other", []),
        ("# -*- coding: latin-1 -*-\nimport utils", ["utils.py"]),
        ("\ufeffimport utils", ["utils.py"]),
        ("s = '\\d'\nimport utils", ["utils.py"]),
        ("", []),
    ],
)
def test_what_counts(here, source, found):
    put("utils.py")
    put("other.py")
    put("pkg/__init__.py")
    put("pkg/layers.py")
    put("pkg/deep/__init__.py")
    put("pkg/deep/leaf.py")
    put("space/mod.py")
    put("gputasks/__init__.py")
    put("gputasks/plan.py")
    put("train.py", source)
    assert list(local_imports("train.py", roots=["."])) == found


def test_transitively_and_in_circles(here):
    put("train.py", "import a")
    put("a.py", "import b")
    put("b.py", "import a, pkg.one")
    put("pkg/__init__.py", "from .two import *")
    put("pkg/one.py", "from . import three\nfrom ..a import x\nfrom .sub import leaf")
    put("pkg/two.py", "from .sub.leaf import y")
    put("pkg/three.py", "import train")
    put("pkg/sub/__init__.py")
    put("pkg/sub/leaf.py", "from ...b import z\nfrom .. import two")
    assert local_imports("train.py") == (
        "a.py", "b.py", "pkg/__init__.py", "pkg/one.py", "pkg/sub/__init__.py", "pkg/sub/leaf.py",
        "pkg/three.py", "pkg/two.py",
    )  # fmt: skip


def test_star_import_of_a_package_that_names_its_modules(here):
    put("train.py", "from models import *")
    put("models/__init__.py", "__all__ = ['resnet', 'nothing']\n__all__ += ['vgg']")
    put("models/resnet.py")
    put("models/vgg.py")
    put("models/other.py")
    assert local_imports("train.py") == ("models/__init__.py", "models/resnet.py", "models/vgg.py")


def test_where_modules_are_looked_for(here, tmp_path):
    put("scripts/train.py", "import near, far, lib, shadow, json")
    put("scripts/near.py")
    put("scripts/shadow.py")
    put("shadow.py")
    put("far.py")
    put("src/lib/__init__.py")
    put("json.py")
    assert local_imports("scripts/train.py") == ("scripts/near.py", "scripts/shadow.py")
    roots = [str(tmp_path), "src"]
    digests = Digests(Layout(str(tmp_path)))
    for script in ("scripts/train.py", str(tmp_path / "scripts/train.py")):
        assert local_imports(script, roots=roots, digests=digests) == (
            "far.py", "json.py", "scripts/near.py", "scripts/shadow.py", "src/lib/__init__.py",
        )  # fmt: skip


def test_roots_outside_the_project(here, tmp_path_factory):
    lib = tmp_path_factory.mktemp("lib")
    put(str(lib / "shared.py"), "import deeper")
    put(str(lib / "deeper.py"))
    put("train.py", "import shared")
    found = local_imports("train.py", roots=[str(lib)])
    assert found == (str(lib / "deeper.py"), str(lib / "shared.py"))


def test_packages_come_before_modules_and_built_ones_before_sources(here):
    put("train.py", "import both, ops")
    put("both/__init__.py")
    put("both.py")
    put("ops.py", "import other")
    put("ops.cpython-311-x86_64-linux-gnu.so")
    put("other.py")
    assert local_imports("train.py") == ("both/__init__.py", "ops.cpython-311-x86_64-linux-gnu.so")


def test_a_namespace_in_one_root_does_not_hide_a_package_in_another(here):
    put("train.py", "import data.loader")
    put("data/images.txt")
    put("src/data/__init__.py")
    put("src/data/loader.py")
    assert local_imports("train.py", roots=["src"]) == (
        "src/data/__init__.py",
        "src/data/loader.py",
    )


@pytest.mark.parametrize(
    ("source", "message", "place"),
    [
        ("import a\ndef f(:\n  pass\n", "`train.py` does not parse: invalid syntax", "train.py:2"),
        ("x = '\n", "`train.py` does not parse: unterminated string literal", "train.py:1"),
        (
            "import a\n\0\n",
            "`train.py` does not parse: source code string cannot contain null bytes",
            "train.py",
        ),
        (
            "(" * 5000 + ")" * 5000,
            "`train.py` does not parse: ",
            "train.py",
        ),
    ],
)
def test_a_script_that_does_not_parse(here, source, message, place):
    put("train.py", source)
    with pytest.raises(ConfigError) as caught:
        local_imports("train.py")
    assert caught.value.message.startswith(message)
    assert caught.value.place.startswith(place)


def test_what_is_written_for_another_python_is_read_line_by_line(here):
    text = "import a, b as x  # c\n  from pkg.m import (d as e,\n f)\nfrom . import g; import q\nprint 'old'\n"
    put("train.py", "import old")
    put("old.py", text)
    for name in ("a", "b", "g", "q", "x", "c", "pkg/__init__", "pkg/m"):
        put(f"{name}.py")
    found = local_imports("train.py")
    assert {"old.py", "a.py", "b.py", "g.py", "pkg/__init__.py", "pkg/m.py"} <= set(found)
    assert not {"x.py", "c.py"} & set(found)
    assert set(local_imports("old.py", must_parse=False)) == set(found) - {"old.py"}
    with pytest.raises(ConfigError):
        local_imports("old.py")


def test_a_script_that_is_not_there_yet(here, tmp_path):
    assert local_imports("none.py") == ()
    assert local_imports("none.py", digests=Digests(Layout(str(tmp_path)))) == ()


def test_a_bound(here):
    put("train.py", "import m0")
    for number in range(30):
        put(f"m{number}.py", f"import m{number + 1}")
    assert len(local_imports("train.py")) == 30
    with pytest.raises(ConfigError, match=r"^`train.py` imports more than 20 local modules"):
        local_imports("train.py", max_files=20)


def test_nothing_is_parsed_twice(here, tmp_path, monkeypatch):
    put("train.py", "import a")
    put("a.py", "import b")
    put("b.py")
    time.sleep(0.03)
    digests = Digests(Layout(str(tmp_path)))
    assert local_imports("train.py", digests=digests) == ("a.py", "b.py")
    digests.save()
    parsed = []
    original = parsing.imported_names
    monkeypatch.setattr(
        parsing, "imported_names", lambda s, p, **k: parsed.append(p) or original(s, p, **k)
    )
    digests = Digests(Layout(str(tmp_path)))
    assert local_imports("train.py", digests=digests) == ("a.py", "b.py")
    assert parsed == []
    put("a.py", "import c")
    put("c.py")
    digests.invalidate()
    assert local_imports("train.py", digests=digests) == ("a.py", "c.py")
    assert parsed == ["a.py", "c.py"]


def test_a_module_that_appears_is_found_although_no_file_changed(here, tmp_path):
    put("train.py", "import later")
    digests = Digests(Layout(str(tmp_path)))
    assert local_imports("train.py", digests=digests) == ()
    put("later.py")
    assert local_imports("train.py", digests=digests) == ("later.py",)


def test_neither_ast_nor_blake3_is_loaded_while_nothing_changed(here, tmp_path):
    put("train.py", "import a")
    put("a.py")
    time.sleep(0.03)
    program = """
import sys
from gputasks.fingerprint import Digests, interpreter, local_imports
from gputasks.layout import Layout
digests = Digests.shared(Layout())
interpreter(digests=digests)
for path in ("train.py", *local_imports("train.py", digests=digests)):
    digests.path(path)
print([m for m in ("ast", "blake3", "subprocess", "hashlib", "gputasks.proc") if m in sys.modules])
"""
    said = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout
        for _ in range(2)
    ]
    assert said[1] == "[]\n"
