"""`${secrets.NAME}`: written in dodo.py, resolved last, never kept.

A reference is what the fingerprint, the receipt and the record hold; the value exists only in the
environment of the process that needs it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gputasks.errors import MachineError
from gputasks.settings.environment import secret_names

if TYPE_CHECKING:
    from collections.abc import Mapping
_REFERENCE = re.compile(r"\$\{secrets\.(\w+)\}", re.ASCII)


def resolve(values: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """The values with every reference replaced by the variable of that name.

    Args:
        values: variables as the task declares them.
        environ: where secrets come from: the caller's environment.

    Raises:
        MachineError: naming every reference that has no value, before anything starts.

    """
    missing = {
        name: key
        for key, text in values.items()
        for name in secret_names(text)
        if not environ.get(name)
    }
    if missing:
        names = ", ".join(f"`{name}`" for name in missing)
        raise MachineError(
            f"secret {names} has no value",
            facts=[f"`{key}` of this task needs `{name}`" for name, key in missing.items()],
            hint=f"`export {next(iter(missing))}=…` in the shell that runs doit",
        )
    return {k: _REFERENCE.sub(lambda m: environ[m[1]], v) for k, v in values.items()}
