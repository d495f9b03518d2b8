"""Where secrets come from, what is said when there are none, and how they may be spelt."""

from __future__ import annotations

import base64
import json
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputasks.agent.redact import Redactor
from gputasks.errors import ConfigError, GputasksError, MachineError, ManyErrors
from gputasks.secrets import resolve
from gputasks.secrets.forms import forms
from gputasks.settings.project import load


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project, and a home of its own."""
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "project").mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def write(path: str, text: str, mode: int = 0o600) -> Path:
    file = Path(path).expanduser()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(mode)
    return file


def values(**env: str):
    """What a task gets that refers to A, and to the others in `env`."""
    return resolve({"KEY": "${secrets.A}"}, {**os.environ, **env}, os.getcwd()).env["KEY"]


def error(**env: str) -> GputasksError:
    with pytest.raises(GputasksError) as caught:
        values(**env)
    return caught.value


def faults() -> list[tuple[str, str, str]]:
    """The same whether the file is loaded or a task starts."""
    found = []
    for read in (load, error):
        try:
            fault = read()
        except ConfigError as raised:
            fault = raised
        several = fault.faults if isinstance(fault, ManyErrors) else [fault]
        found.append([(f.message, f.place, f.hint) for f in several])
    assert found[0] == found[1]
    return found[0]


PRINT = json.dumps([sys.executable, "-c", "import os; print('from ' + os.getcwd())"])

# ---- sources


def test_their_order(folder):
    write("gputasks.toml", f'[secrets]\nfile = "mine.toml"\n[secrets.commands]\nA = {PRINT}\n')
    write("mine.toml", 'B = "b"')
    assert values() == f"from {folder}"
    write("mine.toml", 'A = "from the file"')
    assert values() == "from the file"
    assert values(A="from the shell") == "from the shell"
    # An empty variable is none: `A= doit` does not blank it.
    assert values(A="") == "from the file"


def test_the_default_file(monkeypatch, tmp_path):
    assert error().message == "secret `A` has no value"
    write("~/.config/gputasks/secrets.toml", 'A = "home"')
    assert values() == "home"
    other = tmp_path / "xdg"
    assert isinstance(error(XDG_CONFIG_HOME=str(other)), MachineError)
    write(str(other / "gputasks/secrets.toml"), 'A = "xdg"')
    assert values(XDG_CONFIG_HOME=str(other)) == "xdg"
    assert values(XDG_CONFIG_HOME="relative") == "home"
    # A file that is named takes its place.
    write("gputasks.toml", '[secrets]\nfile = "~/own.toml"')
    fault = error()
    assert fault.facts == ("`KEY` of this task needs `A`", "there is no file `~/own.toml`")
    assert values(A="from the shell") == "from the shell"
    write("~/own.toml", 'A = """\n-----BEGIN\nline\n"""')
    assert values() == "-----BEGIN\nline\n"


def test_the_table_of_pyproject_counts_as_well():
    write("pyproject.toml", '[tool.gputasks.secrets]\nfile = "s.toml"')
    write("s.toml", 'A = "a"')
    assert values() == "a"
    load("pyproject.toml")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o610])
def test_a_file_that_others_can_read(mode):
    write("~/.config/gputasks/secrets.toml", 'A = "seen"', mode)
    fault = error()
    assert isinstance(fault, MachineError)
    shown = "~/.config/gputasks/secrets.toml"
    assert fault.message == (
        f"the secrets file `{shown}` has mode {mode:04o}: others may read or change it"
    )
    assert fault.hint == f"`chmod 600 {shown}`"


def test_a_file_that_is_none():
    os.makedirs(os.path.expanduser("~/.config/gputasks"))
    path = os.path.expanduser("~/.config/gputasks/secrets.toml")
    os.mkfifo(path)
    assert "is no regular file" in error().message
    os.unlink(path)
    os.mkdir(path)
    assert "is no regular file" in error().message


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_somebody_else():
    os.chown(write("~/.config/gputasks/secrets.toml", 'A = "theirs"'), 65534, -1)
    assert "belongs to another user (uid 65534)" in error().message


def test_a_faulty_file_is_told_without_values():
    path = "~/.config/gputasks/secrets.toml"
    write(path, 'my-key = "s3cr3t"\nA = 4711\nB = ["s3cr3t"]\nC = "a\\u0000s3cr3t"\n')
    fault = error()
    assert isinstance(fault, ManyErrors)
    assert [(f.message, f.place) for f in fault.faults] == [
        ("`my-key` is no name of a secret", f"{path}:1"),
        ("secret `A` must be a text", f"{path}:2"),
        ("secret `B` must be a text", f"{path}:3"),
        ("secret `C` holds a NUL byte, which no variable can carry", f"{path}:4"),
    ]
    assert "4711" not in str(fault)
    assert "s3cr3t" not in str(fault)
    write(path, "A = s3cr3t\n")
    assert "s3cr3t" not in str(error())
    assert error().place == f"{path}:1"


def asking(script: str, name: str = "A") -> None:
    words = json.dumps(["sh", "-c", script])
    write("gputasks.toml", f"[secrets.commands]\n{name} = {words}\n")


def test_what_a_command_prints_is_the_value():
    asking("printf 'two\\nlines\\n\\n'")
    assert values() == "two\nlines\n"
    asking("printf word; echo chatter >&2")
    assert values() == "word"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo s3cr3t; printf 'gpg: one\\ngpg: no key\\n\\n' >&2; exit 3", "failed with code 3: gpg: no key"),
        ("echo s3cr3t; exit 1", "failed with code 1"),
        ("kill -9 $$", "was killed by signal 9"),
        ("true", "gave nothing"),
        ("printf 'a\\000b'", "gave bytes that no variable can hold"),
        ("printf '\\377'", "gave bytes that no variable can hold"),
    ],
)  # fmt: skip
def test_a_command_that_fails(script, said):
    asking(script)
    fault = error()
    assert isinstance(fault, MachineError)
    assert fault.message == "secret `A` has no value"
    (fact,) = fault.facts
    assert fact.startswith("`A`: `sh -c ")
    assert fact.endswith(said)


def test_a_command_that_is_not_there():
    write("gputasks.toml", '[secrets.commands]\nA = ["no-such-program", "show"]\n')
    (fact,) = error().facts
    assert fact == (
        "`A`: `no-such-program show` failed with code 127:"
        " No such file or directory: no-such-program"
    )


def test_a_command_that_takes_too_long(monkeypatch):
    monkeypatch.setattr("gputasks.secrets.sources.COMMAND_S", 0.2)
    write("gputasks.toml", '[secrets.commands]\nA = ["sleep", "99"]\n')
    assert error().facts[0].endswith("sleep did not answer within 0.2 s")


def test_only_what_is_needed_is_asked(folder):
    write(
        "gputasks.toml",
        '[secrets.commands]\nA = ["sh", "-c", "touch asked; echo a"]\nB = ["touch", "b-asked"]\n',
    )
    assert values(A="set") == "set"
    assert not (folder / "asked").exists()
    assert values() == "a"
    assert not (folder / "b-asked").exists()


# ---- unresolved


def test_all_that_are_missing_at_once():
    asking("exit 4", "C")
    with pytest.raises(MachineError) as caught:
        resolve({"X": "${secrets.A}-${secrets.B}", "Y": "${secrets.C}", "Z": "z"}, {}, ".")
    fault = caught.value
    assert fault.message == "secret `A`, `B`, `C` has no value"
    assert fault.facts == (
        "`X` of this task needs `A`",
        "`X` of this task needs `B`",
        "`C`: `sh -c 'exit 4'` failed with code 4",
    )
    assert fault.hint.startswith('`export A=…` in the shell that runs doit, or `A = "…"` in `')


# ---- who gets what


def test_secrets_of_others_are_not_passed_on():
    write("~/.config/gputasks/secrets.toml", 'A = "a"\nB = "b"')
    write("gputasks.toml", '[secrets.commands]\nC = ["true"]\n')
    shell = {**os.environ, "A": "aaaa", "B": "b", "C": "c", "D": "d"}
    got = resolve({"KEY": "x${secrets.A}"}, shell, ".")
    assert got.env == {"KEY": "xaaaa"}
    assert {k for k in got.environ if k in "ABCD"} == {"A", "D"}
    got = resolve({"KEY": "plain"}, shell, ".")
    assert {k for k in got.environ if k in "ABCD"} == {"D"}
    assert (got.forms, got.notes) == (frozenset(), ())


def test_without_references_a_fault_is_a_note():
    write("~/.config/gputasks/secrets.toml", 'B = "b"', 0o644)
    got = resolve({}, {**os.environ, "B": "b"}, ".")
    assert got.environ["B"] == "b"
    (note,) = got.notes
    assert note.startswith("the shell's variables are passed on, secrets among them: the secrets")


def test_short_ones_are_not_hidden():
    got = resolve(
        {"K": "${secrets.A}${secrets.B}${secrets.C}"}, {"A": "x", "B": "123", "C": "1234"}, "."
    )
    assert got.hide("x 123 1234") == "x 123 ***"
    assert got.notes == (
        "secret `A`, `B` are shorter than 4 characters, too short to be hidden in logs",
    )
    assert "1234" not in repr(got)


# ---- the table

NO_TEXT = 'a list of a program and its arguments, `["pass", "show", "…"]`, not one text'


def test_a_good_table():
    write(
        "gputasks.toml",
        '[secrets]\nfile = "s.toml"\n[secrets.commands]\nA = ["pass", "show", "a b"]\n',
    )
    load()


def test_all_faults_of_the_table():
    write(
        "gputasks.toml",
        """\
        [secrets]
        fiel = "x"
        file = 3
        WANDB = "s3cr3t"
        TOKEN = ["pass"]
        [secrets.commands]
        my-key = ["x"]
        B = "echo s3cr3t"
        C = []
        D = [""]
        E = ["a", 3]
        """,
    )
    found = faults()
    assert [(m, p.partition(":")[2]) for m, p, _ in found] == [
        ("unknown key `fiel` of `[secrets]`", "2"),
        ("unknown key `WANDB` of `[secrets]`", "4"),
        ("unknown key `TOKEN` of `[secrets]`", "5"),
        ("`file` of `[secrets]` must be a path, not `3`", "3"),
        ("`my-key` of `[secrets.commands]` is no name of a secret", "7"),
        ("`B` of `[secrets.commands]` must be " + NO_TEXT, "8"),
        ("`C` of `[secrets.commands]` names no program", "9"),
        ("`D` of `[secrets.commands]` names no program", "10"),
        ("`E` of `[secrets.commands]` must be a list of texts only, not `3`", "11"),
    ]  # fmt: skip
    hints = [hint for _, _, hint in found]
    assert hints[0] == "did you mean `file`?"
    assert hints[1].startswith("values stand in a file of their own")
    assert hints[2] == "commands stand in `[secrets.commands]`"
    assert "s3cr3t" not in str(found)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("secrets = 3", "`secrets` must be a table, `[secrets]`"),
        ('[secrets]\ncommands = ["a"]', "`commands` of `[secrets]` must be a table, `[secrets.commands]`"),
    ],
)  # fmt: skip
def test_no_tables(text, said):
    write("gputasks.toml", text)
    assert [m for m, _, _ in faults()] == [said]


def test_the_table_counts_in_one_place_only():
    write("other.toml", '[secrets]\nfile = "x"')
    with pytest.raises(
        ConfigError, match=r"`\[secrets\]` does not count in `other.toml`"
    ) as caught:
        load("other.toml")
    assert "gputasks.toml" in caught.value.hint
    assert caught.value.place == "other.toml:1"


def test_other_tables_are_not_looked_at_when_a_task_starts():
    write("gputasks.toml", '[runs.x]\nscrip = "no.py"\n[secrets]\nfile = "s.toml"')
    write("s.toml", 'A = "a"')
    assert values() == "a"


# ---- spellings


secrets = st.text(
    st.characters(codec="utf-8", exclude_characters="\0"), min_size=4, max_size=30
).filter(lambda s: len(s.strip()) >= 4)


@given(secrets, st.binary(max_size=5), st.binary(max_size=5))
def test_base64_of_a_longer_text(secret, before, after):
    redactor = Redactor(forms(secret))
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        whole = encode(before + secret.encode() + after)
        # At most one character at each end is left, and the padding: it holds bits of neighbours.
        rest = redactor.clean(whole).split(b"***")
        assert len(rest) >= 2
        sure = 8 * len(secret.encode()) // 6 - 2
        assert max(map(len, rest)) <= len(whole) - sure


@given(secrets)
def test_written_by_python_json_and_urls(secret):
    import urllib.parse

    redactor = Redactor(forms(secret))
    for spelt in (
        secret,
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        repr(secret)[1:-1],
        urllib.parse.quote(secret),
        urllib.parse.quote(secret, safe=""),
        urllib.parse.quote_plus(secret),
        base64.b64encode(secret.encode()).decode(),
    ):
        assert redactor.clean(b"<" + spelt.encode() + b">") == b"<***>"


def test_lines_of_a_key():
    redactor = Redactor(forms("-----BEGIN KEY-----\r\nMIIEvQIBADANBgk\nshort\n-----END KEY-----\n"))
    text = "  -----BEGIN KEY-----\n  MIIEvQIBADANBgk\n  short\n"
    assert redactor.text(text) == "  ***\n  ***\n  short\n"


def test_lines_of_base64():
    secret = "".join(chr(48 + i % 70) for i in range(200))
    wrapped = base64.encodebytes(secret.encode()).decode().splitlines()
    assert [Redactor(forms(secret)).text(line) for line in wrapped] == ["***"] * len(wrapped)
