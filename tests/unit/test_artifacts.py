"""Files that are whole, files that are not, and moving them aside."""

from __future__ import annotations

import json
import os
import pickle
import struct
import time
import zipfile

import pytest

from gputasks.artifacts import aside, outputs
from gputasks.artifacts.formats import checkable, fault
from gputasks.specs import Artifact


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def archive(path, size=10000):
    with zipfile.ZipFile(path, "w") as z:
        z.writestr("data", os.urandom(size))


def safetensors(path, promised=100, given=100):
    header = json.dumps(
        {"w": {"dtype": "U8", "shape": [promised], "data_offsets": [0, promised]}}
    ).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + b"x" * given)


@pytest.mark.parametrize("name", ["a.ckpt", "a.pt", "a.pth", "a.npz"])
def test_every_truncation_of_an_archive_is_found(name):
    archive(name)
    assert fault(name) == ""
    size = os.path.getsize(name)
    for part in (1, size // 3, size // 2, size - 1):
        with open(name, "rb") as file:
            data = file.read(part)
        with open("cut-" + name, "wb") as file:
            file.write(data)
        if part > 4 or name.endswith(".npz"):
            assert fault("cut-" + name), part


def test_pickle_safetensors_json_npy_empty():
    with open("p.pt", "wb") as file:
        pickle.dump(list(range(1000)), file, protocol=4)
    assert fault("p.pt") == ""
    os.truncate("p.pt", 500)
    assert "truncated" in fault("p.pt")
    safetensors("s.safetensors")
    assert fault("s.safetensors") == ""
    safetensors("s.safetensors", given=50)
    assert "truncated" in fault("s.safetensors")
    with open("s.safetensors", "wb") as file:
        file.write(struct.pack("<Q", 5) + b"nope!")
    assert fault("s.safetensors")
    with open("j.json", "w") as file:
        file.write('{"a": ')
    assert "no JSON" in fault("j.json")
    with open("n.npy", "w") as file:
        file.write("not")
    assert fault("n.npy")
    with open("e.txt", "w"):
        pass
    assert fault("e.txt") == "empty"
    assert "unreadable" in fault("none")


def test_a_checkpoint_of_unknown_format_passes_as_output():
    with open("tf.ckpt", "w") as file:
        file.write("some other framework")
    assert fault("tf.ckpt") == ""
    assert not checkable("tf.ckpt")


def test_newest_checkpoint_that_opens():
    os.makedirs("ckpt")
    for age, name in ((30, "a.ckpt"), (20, "b.ckpt"), (10, "c.ckpt")):
        archive(f"ckpt/{name}")
        os.utime(f"ckpt/{name}", (time.time() - age,) * 2)
    os.truncate("ckpt/c.ckpt", 100)
    os.utime("ckpt/c.ckpt", (time.time() - 10,) * 2)
    path, passed = outputs.newest_checkpoint(["ckpt"], ended=time.time())
    assert path == "ckpt/b.ckpt"
    assert len(passed) == 1
    assert "truncated" in passed["ckpt/c.ckpt"]
    with open("ckpt/d.ckpt", "w") as file:
        file.write("unknown")
    path, passed = outputs.newest_checkpoint(["ckpt"], ended=time.time())
    assert path == "ckpt/b.ckpt"
    path, passed = outputs.newest_checkpoint(["ckpt"], ended=time.time() + 60)
    assert path == "ckpt/d.ckpt"


def test_new_is_asked_of_the_set():
    os.makedirs("ckpt")
    for name in ("best", "last"):
        with open(f"ckpt/{name}", "w") as file:
            file.write("1")
    model = [Artifact("m", "ckpt")]
    before = outputs.state_of(model)
    assert "not new" in outputs.faults(model, before, started=time.time())[0]
    with open("ckpt/last", "w") as file:
        file.write("22")
    assert outputs.faults(model, before, started=time.time()) == []


def test_aside_and_back():
    os.makedirs("ckpt/deep")
    for path in ("ckpt/deep/x", "single"):
        with open(path, "w") as file:
            file.write(path)
    both = [Artifact("m", "ckpt"), Artifact("s", "single"), Artifact("none", "none")]
    assert len(aside.set_aside(both, "kept")) == 2
    assert not os.path.exists("ckpt")
    assert aside.put_back(both, "kept")
    with open("ckpt/deep/x") as file:
        assert file.read() == "ckpt/deep/x"
    assert not aside.put_back(both, "kept")


def test_a_linked_folder_keeps_its_link():
    os.makedirs("disk")
    with open("disk/x", "w") as file:
        file.write("1")
    os.symlink("disk", "ckpt")
    model = [Artifact("m", "ckpt")]
    aside.set_aside(model, "kept")
    assert os.path.islink("ckpt")
    assert os.listdir("disk") == []
    aside.put_back(model, "kept")
    assert os.listdir("disk") == ["x"]
