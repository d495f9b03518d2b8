"""Digests of single files, and when they are trusted without reading."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from gputasks.errors import ConfigError
from gputasks.fingerprint import Digests
from gputasks.fingerprint import statcache as statcache_module
from gputasks.fingerprint.hashing import COARSE_NS, GRAIN_NS, PIECE, file_digest, settled, state_of
from gputasks.fingerprint.statcache import FILES, StatCache
from gputasks.layout import Layout

TICK = 0.03
"""Longer than the grain of any clock that dates files here."""


@pytest.fixture
def reads(monkeypatch):
    """Paths whose content was read."""
    seen: list[str] = []
    original = statcache_module.hash_state

    def counting(path, *args):
        seen.append(os.path.basename(path))
        return original(path, *args)

    monkeypatch.setattr(statcache_module, "hash_state", counting)
    return seen


def fresh(tmp_path, name="f", data=b"one"):
    path = tmp_path / name
    path.write_bytes(data)
    time.sleep(TICK)
    return path


def cache_at(tmp_path):
    return StatCache(str(tmp_path / "stat-cache"), str(tmp_path))


@pytest.mark.parametrize("size", [0, 1, 1000, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 5])
def test_the_digest_is_blake3_of_the_content(tmp_path, size):
    data = os.urandom(size)
    path = fresh(tmp_path, data=data)
    counted = []
    assert file_digest(str(path), counted.append) == "blake3:" + blake3(data).hexdigest()
    assert sum(counted) == size


def test_a_file_that_says_it_is_empty_is_read_to_its_end():
    assert file_digest("/proc/self/limits") != "blake3:" + blake3(b"").hexdigest()


def test_what_has_no_content(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match=r"`.*pipe` is a fifo"):
        file_digest(str(tmp_path / "pipe"))
    with pytest.raises(ConfigError, match="`/dev/null` is a device"):
        Digests(Layout(str(tmp_path))).path("/dev/null")
    with pytest.raises(IsADirectoryError):
        file_digest(str(tmp_path))
    with pytest.raises(FileNotFoundError):
        file_digest(str(tmp_path / "none"))


@given(
    ctime=st.integers(10**18, 2 * 10**18),
    look=st.integers(1, 10**15),
    later=st.integers(1, 10**15),
    ahead=st.integers(-(10**14), 10**14),
)
def test_whatever_the_clocks_a_second_look_settles(ctime, look, later, ahead):
    # The file system's clock is `ahead` of ours: by ours the file was written at `written`.
    written = ctime - ahead
    first, second = written + look, written + look + later
    grain = GRAIN_NS if ctime % 10**9 else COARSE_NS
    if later > grain:
        assert settled(ctime, first, second)
    if ahead >= 0 and look <= grain:
        assert not settled(ctime, first, first)


def test_an_untouched_file_is_read_once(tmp_path, reads):
    fresh(tmp_path)
    first = cache_at(tmp_path)
    digest = first.digest("f")
    first.save()
    again = cache_at(tmp_path)
    assert again.digest("f") == digest
    assert reads == ["f"]
    assert not again.dirty


def test_touch_costs_one_reading_and_changes_nothing(tmp_path, reads):
    path = fresh(tmp_path)
    cache = cache_at(tmp_path)
    digest = cache.digest("f")
    os.utime(path)
    time.sleep(TICK)
    assert [cache.digest("f"), cache.digest("f"), cache.digest("f")] == [digest] * 3
    assert reads == ["f", "f"]


def test_same_size_and_same_mtime_hide_nothing(tmp_path):
    path = fresh(tmp_path, data=b"aaa")
    os.utime(path, ns=(10**18, 10**18))
    time.sleep(TICK)
    cache = cache_at(tmp_path)
    before = cache.digest("f")
    path.write_bytes(b"bbb")
    os.utime(path, ns=(10**18, 10**18))
    assert cache.digest("f") != before


def test_a_write_within_one_tick_of_the_clock_is_seen(tmp_path):
    path = tmp_path / "f"
    cache = cache_at(tmp_path)
    for number in range(300):
        path.write_bytes(b"%03d" % number)
        assert cache.digest("f") == "blake3:" + blake3(b"%03d" % number).hexdigest()


@pytest.mark.parametrize("mtime", [10**9, 4 * 10**18])
def test_files_dated_long_ago_or_ahead_are_read_once(tmp_path, reads, mtime):
    path = fresh(tmp_path)
    os.utime(path, ns=(mtime, mtime))
    time.sleep(TICK)
    cache = cache_at(tmp_path)
    for _ in range(3):
        cache.digest("f")
    assert reads == ["f"]


def test_a_clock_set_back_costs_one_more_reading(tmp_path, reads, monkeypatch):
    fresh(tmp_path)
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() - 3600 * 10**9)
    cache = cache_at(tmp_path)
    cache.digest("f")
    time.sleep(TICK)
    for _ in range(3):
        cache.digest("f")
    assert reads == ["f", "f"]


def test_a_file_that_never_holds_still_is_not_remembered(tmp_path, monkeypatch):
    path = fresh(tmp_path, data=b"x" * 10)
    real = os.read

    def growing(fd, size):
        data = real(fd, size)
        with open(path, "ab") as file:
            file.write(b"y")
        return data

    cache = cache_at(tmp_path)
    monkeypatch.setattr(os, "read", growing)
    cache.digest("f")
    monkeypatch.undo()
    time.sleep(TICK)
    assert cache.get(FILES, "f")[0] == ""
    assert cache.digest("f") == file_digest(str(path))


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: os.urandom(200),
        lambda data: data.replace(b'"blake3:', b'"blake4:', 1),
        lambda data: b"gputasks stat cache 1 00000000\n[]",
    ],
    ids=["empty", "half", "garbage", "one letter", "other shape"],
)
def test_a_damaged_cache_is_a_cold_one(tmp_path, damage):
    fresh(tmp_path)
    cache = cache_at(tmp_path)
    digest = cache.digest("f")
    cache.save()
    file = tmp_path / "stat-cache"
    file.write_bytes(damage(file.read_bytes()))
    again = cache_at(tmp_path)
    assert again.get(FILES, "f") is None
    assert again.digest("f") == digest
    again.save()
    assert cache_at(tmp_path).get(FILES, "f")[1] == digest


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path):
    fresh(tmp_path)
    cache = StatCache("/proc/none/stat-cache", str(tmp_path))
    cache.digest("f")
    cache.save()
    cache.save_rows("data", {"a": "b"})
    assert cache.rows("data") == {}


def test_what_another_process_found_out_is_used_and_kept(tmp_path, reads):
    fresh(tmp_path, "a")
    fresh(tmp_path, "b")
    one, two = cache_at(tmp_path), cache_at(tmp_path)
    assert one.get(FILES, "a") is two.get(FILES, "b") is None
    one.digest("a")
    one.save()
    two.digest("a")
    two.digest("b")
    two.save()
    assert reads == ["a", "b"]
    third = cache_at(tmp_path)
    assert third.get(FILES, "a")
    assert third.get(FILES, "b")


def test_many_processes_never_corrupt_it(tmp_path):
    program = """
import sys
from gputasks.fingerprint.statcache import StatCache
cache = StatCache(sys.argv[1])
for n in range(40):
    cache.put("files", f"{sys.argv[2]}-{n}", ["x" * 500, "d", 0])
    cache.save()
    assert StatCache(sys.argv[1]).get("files", f"{sys.argv[2]}-0") or True
"""
    file = tmp_path / "stat-cache"
    children = [
        subprocess.Popen([sys.executable, "-c", program, str(file), str(n)]) for n in range(4)
    ]
    assert [c.wait(60) for c in children] == [0, 0, 0, 0]
    head, _, body = file.read_bytes().partition(b"\n")
    assert head.startswith(b"gputasks stat cache")
    assert json.loads(body)["files"]
    assert sorted(os.listdir(tmp_path)) == ["stat-cache"]


def test_rows_of_files_that_are_gone_are_dropped_when_they_are_many(tmp_path, monkeypatch):
    monkeypatch.setattr(statcache_module, "_MANY", 10)
    fresh(tmp_path)
    cache = cache_at(tmp_path)
    cache.digest("f")
    for number in range(20):
        cache.put(FILES, f"gone-{number}", ["s", "d", 0])
    cache.save()
    assert list(json.loads((tmp_path / "stat-cache").read_bytes().partition(b"\n")[2])[FILES]) == [
        "f"
    ]


def test_names_of_any_bytes(tmp_path):
    names = [os.fsdecode(n) for n in (b"caf\xe9", b"new\nline", b'q"uote', "ä".encode())]
    for name in names:
        fresh(tmp_path, name, data=os.fsencode(name))
    cache = cache_at(tmp_path)
    found = [cache.digest(n) for n in names]
    cache.save()
    again = cache_at(tmp_path)
    assert [again.get(FILES, n)[1] for n in names] == found


def test_device_numbers_that_change_with_each_mount_do_not_count(tmp_path):
    info = os.stat(fresh(tmp_path))
    values = list(info)
    values[2] = 0x2B  # an anonymous device: major 0
    assert state_of(os.stat_result(values)).endswith(" 0")


def test_ctrl_c_ends_the_hashing_of_a_large_file(tmp_path):
    path = tmp_path / "large"
    with open(path, "wb") as file:
        file.truncate(1 << 40)  # sparse: a terabyte of zeros
    program = f"""
import sys
from gputasks.fingerprint.hashing import file_digest
print("ready", flush=True)
file_digest({str(path)!r})
"""
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert child.stdout.readline() == b"ready\n"
    time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=10)
    assert b"KeyboardInterrupt" in err
    os.unlink(path)
