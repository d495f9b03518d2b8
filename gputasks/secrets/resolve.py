"""References of one task -> its variables, and what must be hidden of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gputasks.errors import GputasksError, MachineError
from gputasks.secrets.hidden import Secrets
from gputasks.secrets.sources import Sources
from gputasks.settings.environment import secret_names

if TYPE_CHECKING:
    from collections.abc import Mapping

_REFERENCE = re.compile(r"\$\{secrets\.([A-Za-z_][A-Za-z0-9_]*)\}")


def resolve(values: Mapping[str, str], environ: Mapping[str, str], folder: str) -> Secrets:
    """The values with every reference replaced.

    Args:
        values: variables as the task declares them.
        environ: the caller's environment.
        folder: of dodo.py, beside which the configuration lies.

    Raises:
        MachineError: naming every reference that has no value, or a secrets file that others can
            read; before anything starts.
        ConfigError: the configuration is faulty.

    """
    needed = {name: key for key, text in values.items() for name in secret_names(text)}
    if not needed:
        return _without(values, environ, folder)
    sources = Sources(folder, environ)
    found = {name: sources.value(name) for name in needed}
    missing = [name for name, value in found.items() if not value]
    if missing:
        raise _missing(missing, needed, sources)
    known = {name: value for name, value in found.items() if value}
    env = {k: _REFERENCE.sub(lambda m: known[m[1]], v) for k, v in values.items()}
    kept = _kept(environ, sources.names - set(needed))
    return Secrets(env, kept, *_hidden(known))


def _hidden(known: Mapping[str, str]) -> tuple[frozenset[bytes], list[str]]:
    """What must not be seen of some secrets, and a note about those that will be."""
    from gputasks.secrets.forms import LEAST, forms

    found = frozenset().union(*map(forms, known.values()))
    short = [f"`{name}`" for name, value in known.items() if len(value.strip()) < LEAST]
    if not short:
        return found, []
    are = f"{', '.join(short)} {'is' if len(short) == 1 else 'are'}"
    return found, [f"secret {are} shorter than {LEAST} characters, too short to be hidden in logs"]


def _without(values: Mapping[str, str], environ: Mapping[str, str], folder: str) -> Secrets:
    """A task without references: faults of the configuration are not its own, but are told."""
    try:
        names = Sources(folder, environ).names
    except GputasksError as error:
        note = f"the shell's variables are passed on, secrets among them: {error.message}"
        return Secrets(values, environ, notes=[note])
    return Secrets(values, _kept(environ, names))


def _kept(environ: Mapping[str, str], others: set[str]) -> dict[str, str]:
    """The caller's variables without the secrets of other tasks."""
    return {name: value for name, value in environ.items() if name not in others}


def _missing(missing: list[str], needed: Mapping[str, str], sources: Sources) -> MachineError:
    names = ", ".join(f"`{name}`" for name in missing)
    said = [sources.failed.get(name) or f"`{needed[name]}` of this task needs `{name}`"
            for name in missing]  # fmt: skip
    if sources.file_missing:
        said.append(f"there is no file `{sources.file_shown}`")
    first = missing[0]
    ways = f'`export {first}=…` in the shell that runs doit, or `{first} = "…"` in'
    return MachineError(
        f"secret {names} has no value",
        facts=said,
        hint="" if first in sources.failed else f"{ways} `{sources.file_shown}`",
    )
