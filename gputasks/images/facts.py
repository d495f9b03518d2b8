"""What is inside an image: which Python, torch, CUDA and packages, asked of the image itself.

In a container without network.  torch is not imported, which would take seconds and may want a GPU:
its `version.py` alone says which version and which CUDA.
"""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

from gputasks.images.engine import EngineAnswerError, quoted

if TYPE_CHECKING:
    from gputasks.images.engine import Engine

SCRIPT = r"""
import json, os, platform
facts = {"python": platform.python_version()}
try:
    from importlib import metadata, util
    found = util.find_spec("torch")
    if found and found.submodule_search_locations:
        for folder in found.submodule_search_locations:
            path = os.path.join(folder, "version.py")
            if os.path.exists(path):
                space = {}
                exec(open(path).read(), space)
                facts["torch"] = str(space.get("__version__", ""))
                facts["cuda"] = space.get("cuda")
    facts["packages"] = sorted({(d.metadata["Name"] or "") + "==" + d.version
                                for d in metadata.distributions()})
except Exception as error:
    facts["error"] = repr(error)
try:
    name = version = ""
    system = []
    for line in open("/var/lib/dpkg/status", errors="replace"):
        if line.startswith("Package: "):
            name = line[9:].strip()
        elif line.startswith("Version: "):
            system.append(name + "=" + line[9:].strip())
    facts["system"] = sorted(system)
except OSError:
    pass
print(json.dumps(facts))
"""

PYTHONS = ("python3", "python")


def read_facts(engine: Engine, ref: str, platform: str = "") -> dict[str, Any]:
    """Facts of an image; of one without Python there are none.

    Raises:
        MachineError: the engine does not answer.

    """
    for python in PYTHONS:
        facts = _asked(engine, ref, python, platform)
        if facts:
            return facts
    return {}


def _asked(engine: Engine, ref: str, python: str, platform: str) -> dict[str, Any]:
    query = f"?platform={quoted(platform)}" if platform else ""
    made = engine.post(
        f"/containers/create{query}",
        {
            "Image": ref,
            "Entrypoint": [python, "-c", SCRIPT],
            "Cmd": [],
            "Tty": True,  # its output is then text, not frames
            "NetworkDisabled": True,
            "Labels": {"io.gputasks.facts": ref},
            "HostConfig": {"NetworkMode": "none"},
        },
    )
    container = str(made["Id"])
    try:
        engine.post(f"/containers/{container}/start")
        ended = engine.post(f"/containers/{container}/wait") or {}
        said = engine.get(f"/containers/{container}/logs?stdout=1")
    except EngineAnswerError:
        return {}  # it has no such program
    finally:
        with contextlib.suppress(EngineAnswerError):
            engine.delete(f"/containers/{container}?force=1&v=1")
    if isinstance(said, str):
        with contextlib.suppress(ValueError):
            said = json.loads(said[said.find("{") :])
    return said if isinstance(said, dict) and ended.get("StatusCode") == 0 else {}


def summary(facts: dict[str, Any]) -> str:
    """`Python 3.12.3, torch 2.13.0, CUDA 13.0`."""
    parts = [f"Python {facts['python']}"] if facts.get("python") else []
    if facts.get("torch"):
        parts.append(f"torch {facts['torch']}")
        parts.append(f"CUDA {facts['cuda']}" if facts.get("cuda") else "no CUDA")
    return ", ".join(parts)
