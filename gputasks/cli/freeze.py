"""`gputasks freeze TASK`: what is installed for a task, to be written down and installed again."""

from __future__ import annotations

import json
import platform
import sys
from importlib.metadata import distributions
from typing import TYPE_CHECKING

from gputasks.cli.graph import known, load
from gputasks.doit_plugin.verdicts import UpToDate
from gputasks.errors import ConfigError
from gputasks.fingerprint import Digests, interpreter
from gputasks.fingerprint.interpreters import normal
from gputasks.layout import Layout, write_whole
from gputasks.receipts.inputs import python_of
from gputasks.version import __version__

if TYPE_CHECKING:
    from importlib.metadata import Distribution

    from gputasks.fingerprint import Interpreter
    from gputasks.specs import Run

OMITTED = ("gputasks", "pip", "setuptools", "uv", "wheel")
"""What installs, and what need not be where workers are."""


INDEXES = ("--index-url", "--extra-index-url", "--find-links", "--no-index")


def freeze(task: str, *, output: str | None, dodo: str) -> int:
    """Print, or write, `name==version` of all packages of a task's Python.

    Raises:
        ConfigError: no such task, or one of plain doit.
        MachineError: its environment is not there and cannot be made.

    """
    tasks, _, _ = load(dodo)
    uptodate = known(tasks, task, dodo).uptodate
    ours = next((u for u, _, _ in uptodate if isinstance(u, UpToDate)), None)
    if ours is None:
        names = [n for n, t in tasks.items() if any(isinstance(u[0], UpToDate) for u in t.uptodate)]
        raise ConfigError(
            f"task `{task}` has no Python of its own",
            hint=f"`gputasks freeze {names[0]}`" if names else "",
        )
    python, options = _python(ours.run, task, ours.layout)
    text = "\n".join([*_head(task, python), *options, *_lines(python)]) + "\n"
    if output is None:
        sys.stdout.write(text)
    else:
        write_whole(output, text.encode())
    return 0


def _python(run: Run, task: str, layout: Layout) -> tuple[Interpreter, list[str]]:
    """The interpreter, and options that say where its packages come from."""
    digests = Digests.shared(layout)
    if not run.has_environment:
        return interpreter(python_of(run), digests=digests), []
    from gputasks import environments
    from gputasks.proc import interrupts

    interrupts.install()
    layout.prepare()
    wanted = environments.look(run, digests)
    held = environments.ensure(
        wanted,
        task=task,
        log=f"{wanted.folder}.log",
        say=lambda _kind, text: print(f"{task}: {text}", file=sys.stderr),
    )
    held.release()
    lines = wanted.requirements.lines
    return wanted.interpreter(), [t for t in lines if t.startswith(INDEXES)]


def _head(task: str, python: Interpreter) -> list[str]:
    where = f"{platform.system()} {platform.machine()}".lower()
    return [
        f"# Packages of task `{task}`, by gputasks {__version__}",
        f"# {python.implementation} {python.version}, {where}",
    ]


def _lines(python: Interpreter) -> list[str]:
    found: dict[str, str] = {}
    for one in distributions(path=list(python.site_dirs)):
        name = normal(one.metadata["Name"] or "")
        if name and name not in OMITTED:
            found.setdefault(name, _line(name, one))
    return [found[name] for name in sorted(found)]


def _line(name: str, one: Distribution) -> str:
    """`name==version`, or where it came from, if that was no index."""
    try:
        origin = json.loads(one.read_text("direct_url.json") or "{}")
        url = str(origin.get("url", ""))
    except ValueError:
        url = ""
    if not url:
        return f"{name}=={one.version}"
    if "vcs_info" in origin:
        return f"{name} @ {origin['vcs_info']['vcs']}+{url}@{origin['vcs_info']['commit_id']}"
    if (origin.get("dir_info") or {}).get("editable"):
        return f"-e {url.removeprefix('file://')}"
    return f"{name} @ {url}"
