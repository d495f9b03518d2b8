"""Differences between two fingerprints, as causes."""

from __future__ import annotations

import copy

import pytest

from gputasks.layout import Layout, file_name, read_json, write_whole
from gputasks.receipts.compare import compare

BASE = {
    "version": 1, "kind": "train", "smoke": False, "params": {"lr": 0.001}, "params_style": "flags", "args": ["--a", "1"],
    "argv": [], "shell": False, "env": {"A": "1"}, "cwd": "", "workers": {"nproc_per_node": 2, "gpu_count": "auto"},
    "artifacts": {"m": "ckpt"}, "python": "CPython 3.11.7", "packages": {"torch": "2.12.0"},
    "files": {"d.csv": "blake3:1"}, "code": {"t.py": "blake3:2"}, "missing": [],
}  # fmt: skip


@pytest.mark.parametrize(("key", "name", "value", "text"), [
    ("params", "lr", 0.01, "lr: 0.001 -> 0.01"),
    ("params", "n", None, "n added: null"),
    ("env", "A", "2", 'env A: "1" -> "2"'),
    ("workers", "nproc_per_node", 4, "nproc_per_node: 2 -> 4"),
    ("artifacts", "m", "out", 'artifact m: "ckpt" -> "out"'),
    ("packages", "torch", "2.13.0", "package torch: 2.12.0 -> 2.13.0"),
    ("files", "d.csv", "blake3:9", "d.csv changed"),
    ("files", "e.csv", "blake3:9", "e.csv added"),
    ("code", "t.py", "blake3:9", "t.py changed"),
])  # fmt: skip
def test_one_difference(key, name, value, text):
    new = copy.deepcopy(BASE)
    new[key][name] = value
    (cause,) = compare(BASE, new, Layout())
    assert cause["text"] == text
    assert cause["new"] == value
    assert cause["name"] == name


def test_equal_and_removed_and_command_line():
    assert compare(BASE, copy.deepcopy(BASE), Layout()) == []
    new = copy.deepcopy(BASE)
    del new["params"]["lr"]
    assert compare(BASE, new, Layout())[0]["text"] == "lr removed, was 0.001"
    new = copy.deepcopy(BASE)
    new["args"] = ["--a", "2"]
    assert compare(BASE, new, Layout())[0]["text"] == "command changed: --a 1 -> 2"


@pytest.mark.parametrize(("old", "new"), [(1, 1.0), (1, True), (1.0, "1.0"), (None, False)])
def test_types_differ(old, new):
    a, b = copy.deepcopy(BASE), copy.deepcopy(BASE)
    a["params"]["x"], b["params"]["x"] = old, new
    assert len(compare(a, b, Layout())) == 1


def test_task_names_as_file_names():
    names = ["train", "train:large", "a/b", "../x", ".hidden", "ä b", "%2F"]
    assert len({file_name(n) for n in names}) == len(names)
    assert all("/" not in file_name(n) and not file_name(n).startswith(".") for n in names)
    assert file_name("train:large") == "train:large"


def test_whole_or_not_at_all(tmp_path):
    path = str(tmp_path / "deep" / "f.json")
    write_whole(path, b'{"a": 1}')
    assert read_json(path) == {"a": 1}
    assert read_json(str(tmp_path / "none")) is None
    write_whole(path, b"{")
    assert read_json(path) is None
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["f.json"]
