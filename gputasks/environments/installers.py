"""uv where it is on PATH, else venv and pip, as commands: still data.

The driver's pip installs into environments of the same Python: it is mostly newer than the one that
a new environment would get, and not putting one there saves half of the time.
"""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

from gputasks import plan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gputasks.environments.environment import Environment

_MISLEADING = (
    "PYTHONHOME",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    # Where else to install, or to install nothing.
    "PIP_DRY_RUN",
    "PIP_PREFIX",
    "PIP_PYTHON",
    "PIP_REQUIREMENT",
    "PIP_ROOT",
    "PIP_TARGET",
    "UV_PREFIX",
    "UV_PROJECT_ENVIRONMENT",
    "UV_PYTHON",
    "UV_SYSTEM_PYTHON",
    "UV_TARGET",
)
"""Variables of the shell that would lead an installer elsewhere; what names indexes stays."""

_QUIET = {
    "NO_COLOR": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_INPUT": "1",
    "PIP_PROGRESS_BAR": "off",
    "PIP_USER": "0",  # a pip.conf may have it, and pip then refuses to install into any other place
    "PYTHONUNBUFFERED": "1",
    "UV_NO_PROGRESS": "1",
}


class Installer:
    """How to make one environment.

    Args:
        environment: what to make.
        environ: the caller's variables.

    """

    def __init__(self, environment: Environment, environ: Mapping[str, str]) -> None:
        self._environment = environment
        self.uv = shutil.which("uv", path=environ.get("PATH", os.defpath))
        kept = plan.inherited(environ)
        self.env = {k: v for k, v in kept.items() if k not in _MISLEADING} | _QUIET

        self._lent = not self.uv and _has_pip(environment.base.version)

    @property
    def name(self) -> str:
        """For messages."""
        return "uv" if self.uv else "pip"

    def make(self) -> list[str]:
        """The command that makes it, empty."""
        base, folder = self._environment.base.executable, self._environment.folder
        if self.uv:
            return [self.uv, "venv", "--python", base, folder]
        without = self._lent or not self._environment.requirements.install
        return [base, "-m", "venv", *(["--without-pip"] if without else []), folder]

    def install(self, requirements: str, constraints: str) -> list[str]:
        """The command that fills it; the files are written before."""
        wanted = self._environment.requirements
        python = self._environment.python
        files = ["-r", requirements, *(["-c", constraints] if wanted.constraints else [])]
        if self.uv:
            return [self.uv, "pip", "install", "--python", python, *files]
        if self._lent:
            return [sys.executable, "-m", "pip", "--python", python, "install", *files]
        return [python, "-m", "pip", "install", *files]


def _has_pip(version: str) -> bool:
    """Whether the driver has a pip that can work on an environment of this version of Python."""
    from importlib import metadata

    try:
        major, minor = metadata.version("pip").split(".")[:2]
    except (metadata.PackageNotFoundError, ValueError):
        return False
    mine = f"{sys.version_info[0]}.{sys.version_info[1]}."
    return version.startswith(mine) and (int(major), int(minor)) >= (22, 3)
