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

LEAK = """\
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
"""


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


def test_a_command_that_shows_all(project):
    project.write("leak.py", leak('open("made", "w").write("1")'))
    project.dodo(f"""
        def task_show():
            return gt.command([{sys.executable!r}, "leak.py"], artifacts=["made"], {ENV})
    """)
    result = project.doit(TOKEN=TOKEN, KEY=KEY)
    assert result.returncode == 0, result.stderr
    log = project.gputasks("logs", "show").stdout
    assert "begin 0\n" in log
    assert "end 0\n" in log
    assert not places_of_secrets(project.root / ".gputasks", result.stdout, result.stderr, log)
    # Another value is no reason to run: the fingerprint knows the reference.
    assert "up to date" in project.doit(TOKEN="other", KEY="other").stderr


def test_no_command_line_shows_them(project, fake_python):
    """Case B100, B101: `ps` of the whole machine, while the workers run."""
    script = 'open("there-" + rank, "w").write("1")\nimport time\nwhile not os.path.exists("go"): time.sleep(0.02)\n'
    training(project, fake_python, leak(script), more=f'artifacts=["there-0"], {ENV}')
    doit = project.start("train", TOKEN=TOKEN, KEY=KEY)
    eventually(lambda: all((project.root / f"there-{r}").exists() for r in (0, 1)), 30)
    lines = [p.read_bytes() for p in Path("/proc").glob("[0-9]*/cmdline") if p.exists()]
    assert len(project.living()) >= 5  # doit, two guards, the launcher, two workers
    assert not [one for one in spellings() for line in lines if one in line]
    # Also while they run, no log has it; the state folder is clean before the end.
    logs = list((project.root / ".gputasks").rglob("*.log"))
    assert {p.name for p in logs} == {"output.log", "rank-0.log", "rank-1.log"}
    assert not [one for one in spellings() for p in logs if one in p.read_bytes()]
    (project.root / "go").touch()
    assert doit.wait(30) == 0


def test_the_driver_is_killed(project, fake_python):
    script = 'import signal, time\nsignal.signal(15, lambda *_: (print("bye " + token), sys.exit(0)))\nopen("there", "w").close()\ntime.sleep(60)'
    training(project, fake_python, leak(script), more=ENV, nproc=1)
    doit = project.start("train", TOKEN=TOKEN, KEY=KEY)
    eventually(lambda: (project.root / "there").exists(), 30)
    os.kill(doit.pid, signal.SIGKILL)
    doit.wait()
    project.gone(20)
    assert not places_of_secrets(project.root / ".gputasks", project.output(doit))
    (log,) = (project.root / ".gputasks").rglob("rank-0.log")
    assert log.read_text().endswith("end 0\nbye ***\n")


def test_everybody_is_killed(project, fake_python):
    """What scripts wrote themselves is cleaned by the next run then, which also ends the worker."""
    script = 'open("there", "w").close()\ntime.sleep(0 if os.path.exists("go") else 60)'
    text = leak(f"import time\n{script}")
    training(project, fake_python, text, more=ENV, nproc=1)
    pipes = project.root.parent / "pipes"  # nobody is left to remove them
    pipes.mkdir()
    doit = project.start("train", TOKEN=TOKEN, KEY=KEY, TMPDIR=str(pipes))
    eventually(lambda: (project.root / "there").exists(), 30)
    guards = [pid for pid, line in project.living().items() if "guard.py" in line]
    assert len(guards) == 2
    for pid in (doit.pid, *guards):
        os.kill(pid, signal.SIGKILL)
    doit.wait()
    assert places_of_secrets(project.root / ".gputasks")
    (project.root / "go").touch()
    result = project.doit("train", TOKEN=TOKEN, KEY=KEY)
    assert result.returncode == 0, result.stderr
    assert not places_of_secrets(project.root / ".gputasks", result.stderr)


SHOW = """\
import os
print({k: v for k, v in os.environ.items() if k in ("KEY", "API_KEY", "OTHER", "PLAIN")})
open("made", "w").write("1")
"""


def show(project, env: str) -> None:
    project.write("show.py", SHOW)
    project.dodo(f"""
        def task_show():
            return gt.command([{sys.executable!r}, "show.py"], artifacts=["made"], env={env})
    """)


def home(project) -> dict[str, str]:
    folder = project.root.parent / "home"
    (folder / ".config/gputasks").mkdir(parents=True)
    return {"HOME": str(folder), "XDG_CONFIG_HOME": ""}


def secrets_file(project, text: str, mode: int = 0o600) -> None:
    path = project.root.parent / "home/.config/gputasks/secrets.toml"
    path.write_text(text)
    path.chmod(mode)


def test_file_environment_and_command(project):
    """Case B102: none of them is a word of a command line; no gt.load is needed."""
    env = home(project)
    show(project, '{"KEY": "${secrets.API_KEY}"}')
    result = project.doit(**env)
    assert result.returncode == 2
    assert "error: secret `API_KEY` has no value" in result.stderr
    assert "hint: `export API_KEY=…` in the shell that runs doit" in result.stderr
    secrets_file(project, 'API_KEY = "from-the-file"', 0o640)
    result = project.doit(**env)
    assert result.returncode == 2
    assert "`~/.config/gputasks/secrets.toml` has mode 0640" in result.stderr
    assert "hint: `chmod 600 ~/.config/gputasks/secrets.toml`" in result.stderr
    assert not (project.root / "made").exists()
    secrets_file(project, 'API_KEY = "from-the-file"')
    assert project.doit(**env).returncode == 0
    assert project.gputasks("logs", "show").stdout == "{'KEY': '***'}\n"
    secrets_file(project, "")
    project.write("ask", "#!/bin/sh\necho from-the-command\necho chatter >&2\n").chmod(0o755)
    project.write("gputasks.toml", '[secrets.commands]\nAPI_KEY = ["./ask"]\n')
    assert project.doit("-a", **env).returncode == 0
    assert project.gputasks("logs", "show").stdout == "{'KEY': '***'}\n"
    project.write("ask", "#!/bin/sh\necho from-the-command\necho locked >&2\nexit 7\n")
    result = project.doit("-a", **env)
    assert result.returncode == 2
    assert "`API_KEY`: `./ask` failed with code 7: locked" in result.stderr
    assert "from-the-command" not in result.stdout + result.stderr


def test_only_declared_ones_reach_a_task(project):
    """Case B103."""
    env = home(project)
    secrets_file(project, 'API_KEY = "key-value"\nOTHER = "other-value"')
    show(project, '{"KEY": "${secrets.API_KEY}"}')
    result = project.doit(API_KEY="shell-value", OTHER="other-value", PLAIN="plain", **env)
    assert result.returncode == 0, result.stderr
    log = project.gputasks("logs", "show").stdout
    assert "OTHER" not in log
    assert "'API_KEY': '***'" in log
    assert "'KEY': '***'" in log
    assert "'PLAIN': 'plain'" in log
    show(project, "{}")
    project.doit("-a", API_KEY="shell-value", OTHER="other-value", PLAIN="plain", **env)
    assert project.gputasks("logs", "show").stdout == "{'PLAIN': 'plain'}\n"


@pytest.mark.parametrize("name", ["my-key", "9LIVES", "", "a.b", "é"])
def test_names_that_no_variable_has(project, name):
    show(project, '{"KEY": "${secrets.' + name + '}"}')
    result = project.doit()
    assert result.returncode == 3
    assert f"`'${{secrets.{name}}}'` in `env.KEY` of `gt.command`" in result.stderr
    assert "names are letters, digits and `_`" in result.stderr


def test_unresolved_before_anything_is_touched(project):
    """Case B105: the artifacts of the last good run stay, and nothing is started."""
    show(project, '{"KEY": "${secrets.FIRST}${secrets.SECOND}"}')
    assert project.doit(FIRST="first", SECOND="second", **home(project)).returncode == 0
    made = (project.root / "made").stat().st_mtime_ns
    runs = list((project.root / ".gputasks/runs/show").iterdir())
    result = project.doit("-a")
    assert result.returncode == 2
    assert "secret `FIRST`, `SECOND` has no value" in result.stderr
    assert (project.root / "made").stat().st_mtime_ns == made
    assert list((project.root / ".gputasks/runs/show").iterdir()) == runs


def test_a_short_one_does_not_blank_the_log(project):
    """Case B101: told once, not hidden."""
    show(project, '{"KEY": "${secrets.PIN}"}')
    result = project.doit(PIN="e")
    assert result.returncode == 0
    told = "secret `PIN` is shorter than 4 characters, too short to be hidden in logs"
    assert result.stderr.count(told) == 1
    assert project.gputasks("logs", "show").stdout == "{'KEY': 'e'}\n"


def test_up_to_date_reads_no_configuration(project):
    """Neither the file of secrets nor the table is opened where nothing starts."""
    show(project, '{"KEY": "${secrets.PIN}"}')
    assert project.doit(PIN="1234").returncode == 0
    project.write("gputasks.toml", "[secrets]\nfile = 3\n")
    assert "up to date" in project.doit().stderr
    result = project.doit("-a")
    assert result.returncode == 2
    assert "`file` of `[secrets]` must be a path, not `3`" in result.stderr
    assert "--> gputasks.toml:2" in result.stderr


def test_each_attempt_is_hidden(project, fake_python):
    script = 'print("try", token, os.environ["GPUTASKS_ATTEMPT"])\nraise OSError(token)'
    text = f"import os\ntoken = os.environ['TOKEN']\n{script}\n"
    training(project, fake_python, text, more=f"retries=1, {ENV}", nproc=1)
    result = project.doit(TOKEN=TOKEN, KEY=KEY)
    assert result.returncode == 1
    assert not places_of_secrets(project.root / ".gputasks", result.stderr)
    logs = sorted((project.root / ".gputasks").rglob("rank-0.log"))
    assert [p.read_text().splitlines()[0] for p in logs] == ["try *** 0", "try *** 1"]


@pytest.mark.parametrize("word", ["kind", "outcome", "train", "failed", "rank", "message", "text"])
def test_words_of_our_own_are_not_broken(project, fake_python, word):
    """Whoever has `outcome` for a password still gets records that can be read."""
    script = """
        import os, json
        print(os.environ["TOKEN"])
        with open(os.environ["GPUTASKS_EVENTS"], "a") as file:
            print(json.dumps({"t": 1, "kind": "progress", "step": 3, "metrics": {"m": 2}}), file=file)
        raise ValueError("bad")
    """
    training(project, fake_python, textwrap.dedent(script), more=ENV, nproc=1)
    result = project.doit(TOKEN=word, KEY=KEY)
    assert result.returncode == 1, result.stderr
    assert "`train` failed: rank 0" in result.stderr
    (status,) = json.loads(project.gputasks("status", "--json").stdout)
    assert (status["task"], status["outcome"]) == ("train", "failed")
    log = project.gputasks("logs", "train", "--rank", "0").stdout
    assert log.startswith("***\n")


@pytest.mark.slow
@pytest.mark.torch
def test_real_torch(project):
    """torch's own error file and traceback, and the launcher's table."""
    script = leak("""
        import torch
        from torch.distributed.elastic.multiprocessing.errors import record

        @record
        def main():
            together()
            raise ValueError("bad " + token + " and " + key)

        torch.distributed.init_process_group("gloo")
        main()
    """)
    training(project, sys.executable, script, more=ENV)
    result = project.doit(TOKEN=TOKEN, KEY=KEY, timeout=120)
    assert result.returncode == 1
    assert "rank 1" in result.stderr
    assert "ValueError: bad *** and ***" in result.stderr
    assert not places_of_secrets(project.root / ".gputasks", result.stdout, result.stderr)
    assert list((project.root / ".gputasks").rglob("elastic/**/error.json"))


def test_stacks_of_a_hang_come_through_the_pipe(project, fake_python):
    script = "import os, time\nprint(os.environ['TOKEN'], flush=True)\ntime.sleep(99)\n"
    more = f'stall_timeout=2, stop_grace="1s", {ENV}'
    training(project, fake_python, script, more=more, nproc=1)
    result = project.doit(TOKEN=TOKEN, KEY=KEY)
    assert result.returncode == 1
    assert "no sign of life from rank 0 for 2 s" in result.stderr
    assert "train.py:3" in result.stderr
    assert not places_of_secrets(project.root / ".gputasks", result.stderr)


def test_two_tasks_at_once_hide_their_own(project):
    """Under `-n` each task has its own values, in processes and in threads."""
    project.write("show.py", SHOW.replace('"made"', 'os.environ["OUT"]'))
    project.dodo(f"""
        def task_t():
            for n in "ab":
                yield gt.command([{sys.executable!r}, "show.py"], name=n, artifacts=["made-" + n],
                                 env={{"OUT": "made-" + n, "KEY": "${{secrets.KEY_" + n + "}}"}})
    """)
    env = {"KEY_a": "value-of-a", "KEY_b": "value-of-b"}
    for kind in ("process", "thread"):
        result = project.doit("-a", "-n", "2", "-P", kind, **env)
        assert result.returncode == 0, result.stderr
        for name in ("t:a", "t:b"):
            assert project.gputasks("logs", name).stdout == "{'KEY': '***'}\n"
