"""Variables of a task, and references to secrets in them.

Values are text, verbatim: nothing is expanded but `${secrets.NAME}`, and that at the last moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gputasks.checks.faults import shown
from gputasks.checks.values import unsendable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gputasks.checks.faults import Faults

_OPEN = "${secrets."

_GPUS = "`resources=gt.Resources(gpu_count=…)` chooses GPUs"
_WORKERS = "`nproc_per_node=` sets the number of workers"
_RENDEZVOUS = "leave it out: workers find each other without it"
_ALWAYS = {"CUDA_VISIBLE_DEVICES": _GPUS, "CUDA_DEVICE_ORDER": _GPUS}
_TRAINING = {
    "RANK": _WORKERS,
    "LOCAL_RANK": _WORKERS,
    "WORLD_SIZE": _WORKERS,
    "LOCAL_WORLD_SIZE": _WORKERS,
    "GROUP_RANK": _WORKERS,
    "GROUP_WORLD_SIZE": _WORKERS,
    "NODE_RANK": _WORKERS,
    "MASTER_ADDR": _RENDEZVOUS,
    "MASTER_PORT": _RENDEZVOUS,
}
_TRAINING_PREFIXES = ("PET_", "TORCHELASTIC_")


def checked_env(faults: Faults, value: Any, *, training: bool) -> dict[str, str]:
    """`env`: names and texts.

    Args:
        faults: where to note them.
        value: what was given.
        training: the launcher sets further variables of its own; a command may set those itself.

    """
    if not hasattr(value, "items"):
        faults.must("env", "a table of names and texts", value)
        return {}
    found = {}
    for name, text in value.items():
        if not is_name(name):
            faults.add(
                f"{shown(name)} in `env` of {faults.owner} is no name of a variable",
                "env",
                str(name),
                hint="letters, digits and `_`, not starting with a digit",
            )
        elif hint := _reserved(name, training=training):
            faults.add(
                f"`{name}` in `env` of {faults.owner} is set by gputasks", "env", name, hint=hint
            )
        elif not isinstance(text, str):
            faults.add(
                f"`{name}` in `env` of {faults.owner} must be a text, not {shown(text)}",
                "env",
                name,
                hint=_quoted(text),
            )
        elif why := unsendable(text):
            # The value is not shown: it may be a secret in clear.
            faults.add(f"`{name}` in `env` of {faults.owner} {why}", "env", name)
        else:
            check_references(faults, text, "env", name)
            found[name] = str(text)
    return found


def _reserved(name: str, *, training: bool) -> str:
    if name in _ALWAYS:
        return _ALWAYS[name]
    if name.startswith("GPUTASKS_"):
        return "choose a name that does not start with `GPUTASKS_`"
    if training and name in _TRAINING:
        return _TRAINING[name]
    if training and name.startswith(_TRAINING_PREFIXES):
        return "leave it out: the launcher's options are not the script's"
    return ""


def _quoted(value: Any) -> str:
    if value is None:
        return "leave it out to have none"
    if isinstance(value, bool):
        return f'write `"{int(value)}"` or `"{str(value).lower()}"`, as the program reads it'
    if not isinstance(value, (int, float)):
        return ""
    return f'write `"{value}"`'


def is_name(value: Any) -> bool:
    """True for `[A-Za-z_][A-Za-z0-9_]*`: what every shell takes as a variable."""
    return isinstance(value, str) and value.isascii() and value.isidentifier()


def secret_names(text: str) -> tuple[str, ...]:
    """The names of the secrets that a text refers to, in order, each once."""
    found = _references(text)
    return tuple(dict.fromkeys(name for name, end in found if end and is_name(name)))


def _references(text: str) -> list[tuple[str, str]]:
    """What follows each `${secrets.`, valid or not, and its `}`, or nothing where there is none."""
    parts = (part.partition("}") for part in text.split(_OPEN)[1:])
    return [(name, end) for name, end, _ in parts]


def check_references(faults: Faults, text: str, *keys: str) -> None:
    """Refuse a reference that could never be resolved: `${secrets.my-key}`, `${secrets.A`."""
    for name, end in _references(text):
        if not end or not is_name(name):
            faults.add(
                f"{shown(_OPEN + name + end)} in `{'.'.join(keys)}` of {faults.owner} is no"
                " reference to a secret",
                *keys,
                hint="names are letters, digits and `_`: `${secrets.MY_KEY}`",
            )


def refuse_references(faults: Faults, texts: Iterable[str], *keys: str) -> None:
    """Refuse secrets where everybody can read them: `ps` shows every command line."""
    for text in texts:
        if _OPEN in text:
            name = next(iter(secret_names(text)), "NAME")
            faults.add(
                f"`{'.'.join(keys)}` of {faults.owner} holds a secret, and `ps` shows"
                " command lines",
                *keys,
                hint=f'give it as a variable: `env={{"{name}": "${{secrets.{name}}}"}}`',
            )
