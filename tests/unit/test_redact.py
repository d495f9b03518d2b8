"""Forms become ***, in whatever pieces they come, and the pipes lose nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest
from conftest import eventually, living
from hypothesis import given
from hypothesis import strategies as st

from gputasks.agent.redact import BEGUN, Redactor, Stream, clean_folder
from gputasks.proc import Guarded, Hide, Start

SECRET = b"s3cr3t-value-of-mine"


def streamed(redactor: Redactor, pieces: list[bytes]) -> bytes:
    stream = Stream(redactor)
    return b"".join([*map(stream.feed, pieces), stream.feed(b"", last=True)])


def test_what_it_does():
    one = Redactor([SECRET, b"abab", b"value-of-mine!!"])
    assert one.clean(b"a " + SECRET + b" b") == b"a *** b"
    assert one.clean(SECRET + SECRET) == b"******"
    assert one.clean(b"xabababy") == b"x***y"
    # Forms that overlap hide all that they cover.
    assert one.clean(b"<" + SECRET + b"!!>") == b"<***>"
    plain = b"nothing of the kind"
    assert one.clean(plain) is plain
    assert Redactor([]).clean(plain) is plain


@pytest.mark.parametrize("length", [1, BEGUN - 1, BEGUN, len(SECRET) - 1])
def test_a_text_that_ends_within_a_secret(length):
    shown = b" " + (b"***" if length >= BEGUN else SECRET[:length])
    assert Redactor([SECRET]).clean(b" " + SECRET[:length]) == shown
    assert streamed(Redactor([SECRET]), [b" ", SECRET[:length]]) == shown


letters = st.text("ab", max_size=40).map(str.encode)


@given(st.lists(letters, max_size=6), st.lists(st.text("ab", min_size=4, max_size=7), min_size=1))
def test_pieces_are_as_good_as_the_whole(pieces, words):
    """Each byte that a form covers is hidden, and no other one, however the text is cut."""
    redactor = Redactor([w.encode() for w in words])
    whole = b"".join(pieces)
    covered = [False] * len(whole)
    for word in words:
        for at in range(len(whole)):
            if whole.startswith(word.encode(), at):
                covered[at : at + len(word)] = [True] * len(word)
    out = streamed(redactor, pieces)
    assert out.replace(b"*", b"") == bytes(
        b for b, hidden in zip(whole, covered, strict=True) if not hidden
    )
    assert out == redactor.clean(whole)


def test_only_what_may_begin_a_secret_is_kept_back():
    stream = Stream(Redactor([SECRET]))
    assert stream.feed(b"loss 0.5\nprompt s") == b"loss 0.5\nprompt "
    assert stream.feed(b"ure? ") == b"sure? "
    assert stream.feed(b"key=s3cr3t") == b"key="
    assert stream.feed(b"-value-of-mine\n") == b"***\n"


def test_values_keep_their_numbers():
    redactor = Redactor([b"1234"])
    value = {"step": 1234, "1234": ["x1234", 1.5, None, True], "n": {"t": "12 34"}}
    assert redactor.value(value) == {
        "step": 1234,
        "***": ["x***", 1.5, None, True],
        "n": {"t": "12 34"},
    }


def test_files_of_an_attempt(tmp_path):
    redactor = Redactor([SECRET, b"1234"])
    text = SECRET.decode()
    (tmp_path / "deep").mkdir()
    (tmp_path / "events").mkdir()
    files = {
        "error.json": json.dumps({"message": f"bad {text}", "time": 1234}, indent=1),
        "deep/rank.jsonl": f'{{"step":1234}}\nno json {text}\n{{"a":"{text}"}}\n{{"half',
        # Written otherwise than json.dumps would: it is the meaning that counts.
        "odd.json": '{"a":"' + "".join(f"\\u{ord(c):04x}" for c in text) + '"}',
        "long.txt": "x" * (1 << 18) + "\n" + text + "\n",
        "edge.txt": "x" * ((1 << 18) - 5) + text,
        "events/rank-0.jsonl": text,
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    (tmp_path / "core").write_bytes(b"\0\1" + SECRET)
    (tmp_path / "plain.txt").write_text("plain")
    (tmp_path / "link").symlink_to("long.txt")
    os.mkfifo(tmp_path / "pipe")
    os.chmod(tmp_path / "long.txt", 0o600)
    before = (tmp_path / "plain.txt").stat()
    clean_folder(str(tmp_path), redactor, without=[str(tmp_path / "events")])

    def read(name: str) -> str:
        return (tmp_path / name).read_text()

    assert json.loads(read("error.json")) == {"message": "bad ***", "time": 1234}
    assert read("deep/rank.jsonl") == '{"step":1234}\nno json ***\n{"a":"***"}\n{"half'
    assert json.loads(read("odd.json")) == {"a": "***"}
    assert read("long.txt") == "x" * (1 << 18) + "\n***\n"
    assert read("edge.txt") == "x" * ((1 << 18) - 5) + "***"
    assert read("events/rank-0.jsonl") == text
    assert (tmp_path / "core").read_bytes() == b"\0\1" + SECRET  # no text: it would be broken
    after = (tmp_path / "plain.txt").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert (tmp_path / "long.txt").stat().st_mode & 0o777 == 0o600
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
        [*(n for n in files if "/" not in n), "deep", "events", "core", "plain.txt", "link", "pipe"]
    )


# ---- the pipes, with a real guard


@pytest.fixture
def start(tmp_path, monkeypatch):
    mark = f"test-{os.getpid()}-{time.monotonic_ns()}"
    pipes = tmp_path / "tmp"
    pipes.mkdir()
    monkeypatch.setenv("TMPDIR", str(pipes))
    attempt = tmp_path / "attempt"
    attempt.mkdir()
    hide = Hide(
        (SECRET,),
        tuple(str(attempt / f"rank-{r}.log") for r in (0, 1)),
        str(attempt),
        str(attempt / "events"),
    )

    def begin(script: str, **more) -> Guarded:
        env = {"PATH": os.environ["PATH"], "ORPHAN_TEST_MARK": mark, "SECRET": SECRET.decode()}
        spec = {
            "argv": [sys.executable, "-c", script],
            "env": env,
            "cwd": str(tmp_path),
            "output": str(attempt / "output.log"),
            "mark": mark,
            "grace_s": 20.0,
            "status": str(attempt / "guard.json"),
            "hide": hide,
        }
        return Guarded.start(Start(**{**spec, **more}))

    begin.attempt = attempt
    yield begin
    eventually(lambda: not living(mark), 10, what="the end of the job")
    assert list(pipes.iterdir()) == []


RANK_1 = """
import os, sys, time, signal
secret = os.environ["SECRET"].encode()
fd = os.open(os.environ["GPUTASKS_LOG_PIPES"] + "/rank-1", os.O_WRONLY)
"""


def read(start, name: str) -> bytes:
    path: Path = start.attempt / name
    return path.read_bytes() if path.exists() else b""


def test_everything_arrives(start):
    guard = start(
        RANK_1
        + "for n in range(300):\n os.write(fd, b'%d %s\\n' % (n, secret) + b'x' * 100000 + b'\\n')\n"
        "os.write(1, b'out ' + secret[:5]); os.write(1, secret[5:] + b'\\n')\n"
        "print(secret, file=sys.stderr, flush=True)\n"
        "os.write(fd, b'last, no line end: s3'); os.kill(os.getpid(), 9)\n"
    )
    found = guard.wait(60)
    assert found is not None
    assert found.returncode == -9
    lines = read(start, "rank-1.log").split(b"\n")
    assert lines[:-1:2] == [b"%d ***" % n for n in range(300)]
    assert {len(line) for line in lines[1::2]} == {100000}
    assert lines[-1] == b"last, no line end: s3"
    assert read(start, "output.log") == b"out ***\nb'***'\n"
    assert not (start.attempt / "rank-0.log").exists()


def test_live(start):
    """A log is read while the job runs, and holds the secret at no time."""
    guard = start(RANK_1 + "os.write(fd, b'at ' + secret + b'\\n'); time.sleep(60)")
    eventually(lambda: read(start, "rank-1.log") == b"at ***\n", 20)
    guard.kill()
    assert guard.wait(10) is not None


def test_somebody_tidies_tmp(start):
    script = (
        "os.write(fd, b'ready ')\n"
        "while not os.path.exists('go'):\n    time.sleep(0.01)\n"
        "os.write(fd, secret)\n"
    )
    guard = start(RANK_1 + script)
    eventually(lambda: read(start, "rank-1.log") == b"ready ", 20)
    shutil.rmtree(next((start.attempt.parent / "tmp").iterdir()))
    (start.attempt.parent / "go").touch()
    found = guard.wait(20)
    assert found is not None
    assert (found.returncode, found.stopped) == (0, "")
    assert read(start, "rank-1.log") == b"ready ***"


STUBBORN = (
    RANK_1
    + """
signal.signal(15, lambda *_: (os.write(fd, b'stopping ' + secret + b'\\n'), os._exit(0)))
os.write(fd, b'ready\\n')
while True:
    time.sleep(0.01)
"""
)


def test_the_guardian_is_killed(start):
    """The supervisor moves what workers write on their way out: nobody gets SIGPIPE."""
    guard = start(STUBBORN)
    eventually(lambda: read(start, "rank-1.log") == b"ready\n", 20)
    os.kill(guard.pid, signal.SIGKILL)
    found = guard.wait(20)
    assert found is not None
    assert found.stopped in ("guard died", "guard signalled")
    eventually(lambda: read(start, "rank-1.log") == b"ready\nstopping ***\n", 10)
    eventually(lambda: not list((start.attempt.parent / "tmp").iterdir()), 10)


def test_the_supervisor_is_killed(start):
    guard = start(RANK_1 + "signal.signal(15, 1)\nos.write(fd, b'ready ' + secret)\ntime.sleep(60)")
    eventually(lambda: read(start, "rank-1.log") == b"ready ***", 20)
    (supervisor,) = map(
        int, Path(f"/proc/{guard.pid}/task/{guard.pid}/children").read_text().split()
    )
    os.kill(supervisor, signal.SIGKILL)
    found = guard.wait(20)
    assert found is not None
    assert found.stopped == "guard died"
    assert read(start, "rank-1.log") == b"ready ***"


def test_what_could_not_be_started(start):
    found = start("", argv=[f"./{SECRET.decode()}/none"]).wait(20)
    assert found is not None
    assert found.error == "No such file or directory: `./***/none`"
    assert SECRET not in read(start, "guard.json")
