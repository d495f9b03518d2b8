"""Digests of folders: what counts, what was changed, and how little is read."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

from gputasks.errors import ConfigError
from gputasks.fingerprint import Digests, diff, read_manifest, trees
from gputasks.layout import Layout

TICK = 0.03
"""Longer than the grain of any clock that dates files here."""


@pytest.fixture
def reads(monkeypatch):
    """Names of files whose content was read."""
    seen: list[str] = []
    original = trees.hash_state

    def counting(path, *args):
        seen.append(os.path.basename(path))
        return original(path, *args)

    monkeypatch.setattr(trees, "hash_state", counting)
    return seen


class Place:
    """A folder `data` with a state folder beside it."""

    def __init__(self, root):
        self.root = root
        self.data = root / "data"
        self.layout = Layout(str(root))
        (self.data / "a" / "b").mkdir(parents=True)
        self.write("top.txt", b"top")
        self.write("a/b/c.txt", b"one")
        self.write("a/z.txt", b"z")

    def write(self, name, data):
        path = self.data / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def digest(self, path="data", *, wait=True):
        if wait:
            time.sleep(TICK)
        digests = Digests(self.layout)
        found = digests.path(path)
        digests.save()
        return found


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def test_equal_content_has_an_equal_digest_wherever_and_whenever(place):
    first = place.digest()
    assert first.startswith("tree:blake3:")
    shutil.copytree(place.data, place.root / "copy")
    for folder, _, names in os.walk(place.root / "copy"):
        for name in names:
            os.utime(os.path.join(folder, name), (1, 1))
            os.chmod(os.path.join(folder, name), 0o755)
    assert place.digest("copy") == first
    assert place.digest("data/") == first
    assert place.digest(str(place.data)) == first


def changed(p):
    p.write("a/b/c.txt", b"two")
    return ["data/a/b/c.txt changed"]


def added(p):
    p.write("a/new.txt", b"new")
    return ["data/a/new.txt added"]


def removed(p):
    os.unlink(p.data / "a/b/c.txt")
    return ["data/a/b/c.txt removed"]


def renamed(p):
    os.rename(p.data / "a/b/c.txt", p.data / "a/b/d.txt")
    return ["renamed data/a/b/c.txt -> data/a/b/d.txt"]


def swapped(p):
    os.rename(p.data / "top.txt", p.data / "x")
    os.rename(p.data / "a/z.txt", p.data / "top.txt")
    os.rename(p.data / "x", p.data / "a/z.txt")
    return ["data/a/z.txt changed", "data/top.txt changed"]


def same_size_and_time(p):
    info = os.stat(p.data / "top.txt")
    p.write("top.txt", b"pot")
    os.utime(p.data / "top.txt", ns=(info.st_atime_ns, info.st_mtime_ns))
    return ["data/top.txt changed"]


def odd_name(p):
    (p.data / os.fsdecode(b"a\nb\xff")).write_bytes(b"?")
    return ["data/a\\nb\\xff added"]


@pytest.mark.parametrize(
    "change", [changed, added, removed, renamed, swapped, same_size_and_time, odd_name]
)
def test_each_change_is_seen_and_named(place, change):
    old = place.digest()
    said = change(place)
    new = place.digest()
    assert new != old
    assert diff(old, new, layout=place.layout, prefix="data") == said
    assert place.digest() == new


def test_many_changes_are_summed_up(place):
    old = place.digest()
    for number in range(9):
        place.write(f"n{number}", b"%d" % number)
    lines = diff(old, place.digest(), layout=place.layout, prefix="data")
    assert lines == [*(f"data/n{n} added" for n in range(5)), "and 4 more"]


def test_empty_files_are_not_said_to_be_renamed(place):
    place.write("a/__init__.py", b"")
    old = place.digest()
    os.rename(place.data / "a/__init__.py", place.data / "a/b/__init__.py")
    lines = diff(old, place.digest(), layout=place.layout, prefix="data")
    assert lines == ["data/a/__init__.py removed", "data/a/b/__init__.py added"]


def test_a_lost_or_damaged_manifest_tells_nothing(place):
    old = place.digest()
    place.write("new", b"")
    new = place.digest()
    file = os.path.join(place.layout.trees, old.rpartition(":")[2])
    with open(file, "r+b") as opened:
        opened.truncate(10)
    assert diff(old, new, layout=place.layout) == []
    os.unlink(file)
    assert diff(old, new, layout=place.layout) == []
    assert read_manifest(new, place.layout).keys() == {"new", "top.txt", "a/z.txt", "a/b/c.txt"}


def test_what_never_counts(place):
    first = place.digest()
    for name in (".git/HEAD", "a/.gputasks/x", "__pycache__/m.pyc", "a/m.pyc"):
        place.write(name, b"x")
    (place.data / "empty" / "deeper").mkdir(parents=True)
    (place.data / "a" / ".git").write_bytes(b"gitdir: elsewhere")
    assert place.digest() == first


def test_touching_everything_reads_once_and_changes_nothing(place, reads):
    first = place.digest()
    for folder, _, names in os.walk(place.data):
        for name in names:
            os.utime(os.path.join(folder, name))
    del reads[:]
    assert place.digest() == first
    assert sorted(reads) == ["c.txt", "top.txt", "z.txt"]
    del reads[:]
    assert place.digest() == first
    assert reads == []


def test_only_what_changed_is_read_again(place, reads):
    place.digest()
    changed(place)
    time.sleep(TICK)
    del reads[:]
    place.digest()
    place.digest()
    assert reads == ["c.txt"]


def test_a_write_within_one_tick_of_the_clock_is_seen(place):
    digests = Digests(place.layout)
    seen = set()
    for number in range(100):
        place.write("top.txt", b"%03d" % number)
        digests.invalidate()
        seen.add(digests.path("data"))
    assert len(seen) == 100


def test_a_folder_behind_a_link(place):
    disk = place.root / "disk"
    os.rename(place.data, disk)
    os.symlink(disk, place.data)
    first = place.digest()
    assert place.digest("disk") == first
    os.utime(place.data, (1, 1), follow_symlinks=False)
    assert place.digest() == first
    shutil.copytree(disk, place.root / "other", symlinks=True)
    os.unlink(place.data)
    os.symlink("other", place.data)
    assert place.digest() == first
    (place.root / "other" / "top.txt").write_bytes(b"else")
    assert place.digest() != first


def test_links_inside(place):
    first = place.digest()
    outside = place.root / "outside"
    outside.mkdir()
    (outside / "f").write_bytes(b"top")
    os.unlink(place.data / "top.txt")
    os.symlink("../outside/f", place.data / "top.txt")
    assert place.digest() == first, "a link to a file counts as the file"
    (outside / "f").write_bytes(b"changed")
    assert place.digest() != first
    (outside / "f").write_bytes(b"top")

    os.rename(place.data / "a", outside / "a")
    os.symlink("../outside/a", place.data / "a")
    assert place.digest() == first, "a link to a folder counts as the folder"
    (outside / "a/b/c.txt").write_bytes(b"two")
    assert place.digest() != first


def test_links_that_lead_nowhere_or_back(place):
    first = place.digest()
    os.symlink("missing", place.data / "dangling")
    second = place.digest()
    os.unlink(place.data / "dangling")
    os.symlink("missing too", place.data / "dangling")
    third = place.digest()
    assert len({first, second, third}) == 3
    os.symlink("..", place.data / "a/b/up")
    os.symlink(place.data, place.data / "a/b/top")
    os.symlink("self", place.data / "self")
    fourth = place.digest()
    assert fourth != third
    names = read_manifest(fourth, place.layout)
    assert {"a/b/up", "a/b/top", "self", "dangling"} <= names.keys()
    assert len(names) == 7


def test_a_large_file_that_is_linked_twice_is_read_once(place, reads):
    place.write("blobs/1", bytes(3 << 20))
    place.write("snap/x", b"x")
    os.symlink("../blobs/1", place.data / "snap/model")
    os.link(place.data / "blobs/1", place.data / "snap/same")
    time.sleep(TICK)
    del reads[:]
    place.digest()
    assert reads.count("1") + reads.count("model") + reads.count("same") == 1


def test_what_has_no_content(place):
    os.mkfifo(place.data / "a/pipe")
    with pytest.raises(ConfigError, match=r"^`data/a/pipe` is a fifo"):
        place.digest()
    os.unlink(place.data / "a/pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place.data / "s"))
        with pytest.raises(ConfigError, match=r"^`data/s` is a socket"):
            place.digest()
    os.unlink(place.data / "s")
    os.symlink("/dev/null", place.data / "null")
    with pytest.raises(ConfigError, match=r"^`data/null` is a device"):
        place.digest()


def test_what_cannot_be_read_is_named(place):
    os.chmod(place.data / "a/z.txt", 0)
    os.chmod(place.data / "a/b", 0)
    program = f"""
from gputasks.errors import MachineError
from gputasks.fingerprint import Digests
from gputasks.layout import Layout
import os
for _ in range(2):
    try:
        Digests(Layout({str(place.root)!r})).path("data")
    except MachineError as error:
        print(error.message)
    os.chmod({str(place.data / "a/z.txt")!r}, 0o644)
"""
    argv = [sys.executable, "-c", program]
    if os.getuid() == 0:  # root reads everything, unless told not to
        argv = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search", *argv]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30)
    assert done.stderr == ""
    os.chmod(place.data / "a/b", 0o755)
    assert done.stdout.splitlines() == [
        "`data/a/z.txt` cannot be read: Permission denied",
        "`data/a/b` cannot be read: Permission denied",
    ]


def test_a_missing_folder(place):
    for path in ("none", "data/top.txt/x", "data/none"):
        with pytest.raises(FileNotFoundError):
            place.digest(path, wait=False)
    os.symlink("none", place.root / "dangling")
    with pytest.raises(FileNotFoundError):
        place.digest("dangling", wait=False)


def test_a_damaged_cache_is_a_cold_one(place):
    first = place.digest()
    rows = os.path.join(place.layout.state, "stat-cache-trees")
    for name in os.listdir(rows):
        with open(os.path.join(rows, name), "r+b") as file:
            file.write(b"garbage")
    changed(place)
    assert place.digest() != first
    place.write("a/b/c.txt", b"one")
    shutil.rmtree(rows)
    os.unlink(place.layout.stat_cache)
    assert place.digest() == first


def test_ctrl_c_keeps_what_was_read(place):
    for number in range(2000):
        place.write(f"many/{number}", b"%d" % number)
    with open(place.data / "zz-large", "wb") as file:
        file.truncate(1 << 40)
    os.makedirs(place.data / "zzz")
    os.rename(place.data / "zz-large", place.data / "zzz" / "large")
    time.sleep(TICK)
    program = f"""
from gputasks.fingerprint import Digests
from gputasks.layout import Layout
digests = Digests.shared(Layout({str(place.root)!r}))
digests.progress = lambda path, size: print(path, size, flush=True)
digests.path("data")
"""
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert child.stdout.readline().startswith(b"data ")
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=10)
    assert b"KeyboardInterrupt" in err
    shutil.rmtree(place.data / "zzz")
    digests = Digests(place.layout)
    assert len(digests.cache.rows("data")) == 2003
    counted = []
    digests.progress = lambda path, size: counted.append(size)
    digests.path("data")
    assert digests._bytes == 0


def test_looked_at_once_until_invalidated(place):
    digests = Digests(place.layout)
    first = digests.path("data")
    changed(place)
    assert digests.path("data") == first
    digests.invalidate()
    assert digests.path("data") != first


def test_a_read_only_state_folder_costs_time_only(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "f").write_bytes(b"x")
    (tmp_path / ".gputasks").write_bytes(b"a file where the folder should be")
    digests = Digests(Layout(str(tmp_path)))
    assert digests.path("data") == Digests(Layout(str(tmp_path))).path("data")
    digests.save()


def test_one_per_process_and_state_folder(place, monkeypatch):
    monkeypatch.chdir(place.root)
    shared = Digests.shared(Layout())
    assert Digests.shared(Layout(str(place.root))) is shared
    assert Digests.shared(Layout("data")) is not shared
    monkeypatch.chdir("/")
    assert shared.path("data") == place.digest()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writer, b"%d" % (Digests.shared(Layout(str(place.root))) is shared))
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(writer)
    with open(reader, "rb") as file:
        assert file.read() == b"0"


@pytest.mark.slow
@pytest.mark.slow
def test_a_hundred_thousand_small_files(place):
    for number in range(100_000):
        if number % 1000 == 0:
            os.makedirs(place.data / f"{number // 1000:03d}")
        (place.data / f"{number // 1000:03d}" / f"{number:06d}").write_bytes(b"%d" % number)
    place.digest()
    program = f"""
import resource, time
from gputasks.fingerprint import Digests
from gputasks.layout import Layout
digests = Digests(Layout({str(place.root)!r}))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.perf_counter()
digests.path("data")
print(time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    seconds, kib = done.stdout.split()
    assert float(seconds) < 5
    assert int(kib) < 20_000
