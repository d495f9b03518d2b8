"""What of a folder can reach an image: the same for the digest and for the tar that is sent."""

from __future__ import annotations

import io
import os
import tarfile
import tracemalloc

import pytest

from gputasks.errors import ConfigError
from gputasks.fingerprint.statcache import StatCache
from gputasks.images.context import Context, ignore_lines
from gputasks.images.tar import tar_stream


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "root"
    for name in ("train.py", "src/a.py", "src/b.txt", ".git/config", "data/big.bin", "x/y/__pycache__/z.pyc",
                 ".gputasks/state.db", "outputs/m.ckpt"):  # fmt: skip
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return root


def paths(context: Context) -> list[str]:
    return [e.path for e in context.entries() if e.kind != "D"]


def digest(context: Context, tmp_path) -> str:
    return context.content(StatCache(str(tmp_path / "stat-cache")), key="image x").digest


def test_state_folders_are_left_out_unless_brought_back(folder):
    assert paths(Context(str(folder))) == [
        "data/big.bin", "outputs/m.ckpt", "src/a.py", "src/b.txt", "train.py",
    ]  # fmt: skip
    assert ".git/config" in paths(Context(str(folder), ["!.git"]))


def test_what_comes_back_comes_with_its_folders(folder):
    context = Context(str(folder), ["*", "!src/*.py"])
    assert [(e.path, e.kind) for e in context.entries()] == [("src", "D"), ("src/a.py", "F")]


def test_only_what_instructions_take(folder):
    assert paths(Context(str(folder), (), ["train.py", "src/*.py"])) == ["src/a.py", "train.py"]
    assert paths(Context(str(folder), (), ["./src/"])) == ["src/a.py", "src/b.txt"]
    assert paths(Context(str(folder), (), [])) == []
    assert "data/big.bin" in paths(Context(str(folder), (), ["."]))


def test_a_source_behind_a_link_takes_everything(folder):
    (folder / "link").symlink_to("src")
    assert "data/big.bin" in paths(Context(str(folder), (), ["link/a.py"]))


def test_digest_is_of_content_names_and_executable_bits(folder, tmp_path):
    context = Context(str(folder), ["data"])
    first = digest(context, tmp_path)
    os.utime(folder / "train.py", (1, 1))
    os.chmod(folder / "train.py", 0o600)
    (folder / "data/big.bin").write_text("ignored")
    assert digest(context, tmp_path) == first
    os.chmod(folder / "train.py", 0o755)
    programs = digest(context, tmp_path)
    assert programs != first
    (folder / "train.py").write_text("other")
    assert digest(context, tmp_path) not in (first, programs)


def test_digest_needs_no_cache_to_be_the_same(folder, tmp_path):
    context = Context(str(folder))
    cache = StatCache(str(tmp_path / "stat-cache"))
    first = context.content(cache, key="k")
    cache.save()
    assert context.content(StatCache(str(tmp_path / "stat-cache")), key="k") == first
    assert context.content(StatCache(str(tmp_path / "other")), key="k") == first
    assert first.bytes == sum(len(p) for p in paths(context))


def test_links_are_links_and_what_has_no_content_is_left_out(folder, tmp_path):
    (folder / "gone").symlink_to("nowhere")
    (folder / "up").symlink_to("../root")
    os.mkfifo(folder / "fifo")
    found = {e.path: (e.kind, e.state) for e in Context(str(folder)).entries()}
    assert found["gone"] == ("L", "nowhere")
    assert found["up"] == ("L", "../root")
    assert "fifo" not in found
    assert digest(Context(str(folder)), tmp_path).startswith("tree:blake3:")


def unpacked(data: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {m.name: m for m in tar.getmembers()}


def test_the_tar_is_the_same_from_every_clone(folder):
    os.chmod(folder / "train.py", 0o775)
    long = "d" * 90 + "/" + "f" * 200
    (folder / long).parent.mkdir()
    (folder / long).write_text("long")
    (folder / "ümlaut").write_text("u")
    (folder / "link").symlink_to("train.py")
    stream = b"".join(tar_stream(Context(str(folder)), {"Dockerfile": b"FROM x\n"}, "files/"))
    os.utime(folder / "train.py", (5, 5))
    assert (
        b"".join(tar_stream(Context(str(folder)), {"Dockerfile": b"FROM x\n"}, "files/")) == stream
    )
    members = unpacked(stream)
    assert {(m.uid, m.gid, m.mtime, m.uname) for m in members.values()} == {(0, 0, 0, "")}
    assert members["files/train.py"].mode == 0o755
    assert members["files/src/a.py"].mode == 0o644
    assert members["files/link"].linkname == "train.py"
    assert f"files/{long}" in members
    assert "files/ümlaut" in members
    assert next(iter(members)) == "Dockerfile"
    assert b"PaxHeader" not in stream


def test_the_tar_is_what_the_digest_is_of(folder):
    context = Context(str(folder), ["src"])
    members = unpacked(b"".join(tar_stream(context, {})))
    assert [e.path for e in context.entries()] == list(members)


def test_memory_is_flat_however_large_the_context(folder):
    with open(folder / "data/big.bin", "wb") as file:
        file.truncate(200_000_000)
    tracemalloc.start()
    sent = sum(map(len, tar_stream(Context(str(folder)), {})))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sent > 200_000_000
    assert peak < 8_000_000


def test_a_file_that_shrinks_breaks_no_tar(folder):
    stream = tar_stream(Context(str(folder), ["*", "!*.bin", "!train.py"]), {})
    entries = list(Context(str(folder), ["*", "!train.py"]).entries())
    assert entries[0].size == 8
    (folder / "train.py").write_text("")
    from gputasks.images.tar import _content

    assert b"".join(_content(str(folder), entries[0])) == bytes(8)
    assert len(b"".join(stream)) % 512 == 0


def test_which_ignore_file_holds(folder):
    (folder / ".dockerignore").write_text("a\n")
    (folder / "x.Dockerfile.dockerignore").write_text("b\n")
    (folder / "own").write_text("c\n")
    root = str(folder)
    assert ignore_lines(root, "") == ["a"]
    assert ignore_lines(root, "", f"{root}/x.Dockerfile") == ["b"]
    assert ignore_lines(root, f"{root}/own", f"{root}/x.Dockerfile") == ["c"]
    assert ignore_lines(root, ("d", "!e")) == ["d", "!e"]


def test_a_bad_pattern_is_a_fault_of_the_file(folder):
    with pytest.raises(ConfigError, match=r"`a\[` is no pattern"):
        Context(str(folder), ["a["])


def test_the_largest_entries_are_told(folder):
    with open(folder / "data/big.bin", "wb") as file:
        file.truncate(1000)
    assert Context(str(folder)).largest(2) == [("data", 1000), ("src", 17)]
