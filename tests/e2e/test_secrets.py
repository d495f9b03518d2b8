"""Secrets reach the workers that ask for them, and nothing else: no log, no record, no `ps`."""

from __future__ import annotations

import base64
import json
import os
import signal
import sys
import textwrap
import urllib.parse
from pathlib import Path

import pytest
from conftest import eventually

TOKEN = 's3cr3t/V+"lue=9&z w'
KEY = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcw\nggSjAgEAAoIBAQC7VJTU\nx8=\n-----END KEY-----\n"

LEAK = '''\
import base64, json, os, subprocess, sys, urllib.parse
rank = os.environ.get("RANK", "0")
token, key = os.environ["TOKEN"], os.environ["KEY"]
assert (token, key) == (@token@, @key@)
print("begin", rank)
print(dict(os.environ), sys.argv)
for name, value in os.environ.items():
    print(name + "=" + value)
for secret in (token, key):
    raw = secret.encode()
    print(secret)
    print(json.dumps({"in": secret}), repr(secret), repr(raw))
    for before in ("", "a", "ab"):
        text = (before + secret + "tail").encode()
        print(base64.b64encode(text).decode(), base64.urlsafe_b64encode(text).decode())
    print(base64.encodebytes(raw).decode(), base64.b64encode(raw).decode())
    print(urllib.parse.quote(secret), urllib.parse.quote(secret, safe=""), urllib.parse.quote_plus(secret))
    print(secret, file=sys.stderr)
    sys.stdout.flush()
    for part in (raw[:7], raw[7:8], raw[8:]):
        os.write(1, part)
    os.write(1, b"\\n")
    subprocess.run(["sh", "-c", "env"])
if "GPUTASKS_EVENTS" in os.environ:
    with open(os.environ["GPUTASKS_EVENTS"], "a") as file:
        print(json.dumps({"t": 1, "kind": "progress", "step": 1, "metrics": {token: 1.5, "m": 2}}), file=file)
        print(json.dumps({"t": 1, "kind": "note", "level": "info", "text": "note " + token + key}), file=file)
        print(json.dumps({"t": 1, "kind": "facts", "batch_size": 4, "best_model_path": "x/" + token}), file=file)
print("end", rank, flush=True)
def own(rank): return os.path.join(os.environ["GPUTASKS_RUN"], "own-%s.txt" % rank)
open(own(rank), "w").write("mine: " + token)
def together():
    import time
    while not all(os.path.exists(own(r)) for r in "01"): time.sleep(0.01)
    if rank == "0": time.sleep(60)
'''


def leak(more: str = "") -> str:
    text = LEAK.replace("@token@", repr(TOKEN)).replace("@key@", repr(KEY))
    return text + textwrap.dedent(more)


def spellings() -> set[bytes]:
    """What must not be found, computed without the code that hides it."""
    lines = [line for line in KEY.splitlines() if len(line) >= 8]
    found: set[str] = {*lines}
    for secret in (TOKEN, KEY):
        found |= {
            secret,
            secret.strip(),
            json.dumps(secret)[1:-1],
            repr(secret)[1:-1],
            urllib.parse.quote(secret),
            urllib.parse.quote(secret, safe=""),
            urllib.parse.quote_plus(secret),
        }
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            found.add(encode(secret.encode()).decode())
            for n in range(3):
                # Whole characters of the secret only, the outer ones are mixed with neighbours.
                found.add(encode(b"\0" * n + secret.encode()).decode()[n + 1 : -4])
        found |= set(base64.encodebytes(secret.encode()).decode().split()[:-1])
    return {one.encode() for one in found}


def places_of_secrets(folder: Path, *texts: str) -> list[str]:
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            data = path.read_bytes()
            found += [f"{path}: {one!r}" for one in spellings() if one in data]
    for text in texts:
        found += [f"output: {one!r}" for one in spellings() if one in text.encode()]
    return found


def training(project, python, script, *, more="", nproc=2):
    project.write("train.py", script)
    project.dodo(f"""
        def task_train():
            return gt.train("train.py", python={python!r}, nproc_per_node={nproc},
                            resources=gt.Resources(gpu_count=0), {more})
    """)


ENV = 'env={"TOKEN": "${secrets.TOKEN}", "KEY": "${secrets.KEY}"}'


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ('open("made-" + rank, "w").write("1")', 0),
        ('together(); raise ValueError("bad " + token + " and " + key)', 1),
        ('together(); sys.exit("gave up: " + token)', 1),
        ("together(); os.kill(os.getpid(), 9)", 1),
    ],
)  # fmt: skip
def test_nothing_holds_them(project, fake_python, end, code):
    training(project, fake_python, leak(end), more=f'artifacts=["made-0"], {ENV}')
    result = project.doit(TOKEN=TOKEN, KEY=KEY)
    assert result.returncode == code, result.stderr + result.stdout
    logs = [project.gputasks("logs", "train", "--rank", str(r)).stdout for r in (0, 1)]
    status = project.gputasks("status", "--json").stdout
    found = places_of_secrets(
        project.root / ".gputasks", result.stdout, result.stderr, *logs, status
    )
    assert not found
    # Also a worker that is killed has all it wrote in its log.
    assert all(f"begin {r}" in logs[r] and f"end {r}\n" in logs[r] for r in (0, 1))
    attempt = next((project.root / ".gputasks/runs/train").glob("*/attempt-0"))
    assert (attempt / "own-1.txt").read_text() == "mine: ***"
    events = (attempt.parent / "events.jsonl").read_text().splitlines()
    kinds = [json.loads(line) for line in events]
    assert "note ******" in [e.get("text") for e in kinds]
    assert [e["metrics"] for e in kinds if e["kind"] == "progress"] == [{"***": 1.5, "m": 2}]
    assert json.loads((attempt.parent / "run.json").read_text())["attempts"][0]["argv"]
    if "raise" in end:
        assert "rank 1" in result.stderr
        assert "ValueError: bad *** and ***" in result.stderr
        assert "at train.py:" in result.stderr
        error = json.loads((attempt / "rank-1.error.json").read_text())
        assert error["message"] == "bad *** and ***"
