"""`${secrets.NAME}`: written in dodo.py, resolved last, never kept.

A reference is what the fingerprint, the receipt and the record hold; the value exists only in the
environment of the process that needs it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gputasks.errors import ConfigError, raise_all
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
        ConfigError: naming every reference that has no value, before anything starts.

    """
    faults = [
        ConfigError(
            f"secret `{name}` is not set, `{key}` of this task needs it",
            hint=f"`export {name}=…` in the shell that runs doit",
        )
        for key, text in values.items()
        for name in secret_names(text)
        if not environ.get(name)
    ]
    raise_all(faults)
    return {k: _REFERENCE.sub(lambda m: environ[m[1]], v) for k, v in values.items()}
