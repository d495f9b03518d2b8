"""What a container engine's words mean, and what to do about them."""

from __future__ import annotations

import re

_NO_TOOLKIT = (
    "the engine has no NVIDIA runtime",
    "install nvidia-container-toolkit, `nvidia-ctk runtime configure --runtime=docker`, restart it",
)
_TABLE: tuple[tuple[str, str, str], ...] = (
    (r'could not select device driver "" with capabilities', *_NO_TOOLKIT),
    (r"[Uu]nknown (?:or invalid )?runtime (?:name: |specified )?nvidia", *_NO_TOOLKIT),
    (
        r'could not select device driver "cdi"',
        "the engine does not know CDI devices",
        "an engine from 25 on with `features.cdi`, or from 28 on",
    ),
    (
        r"unresolvable CDI devices (?P<it>\S+)",
        "the engine knows no device `{it}`",
        "`nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml` lists what is there now",
    ),
    (
        r"unsatisfied condition: (?P<it>[^,;]+)",
        "the image asks for `{it}`, which the NVIDIA driver does not give",
        "a newer driver, an image with an older CUDA, or NVIDIA_DISABLE_REQUIRE=1 at your own risk",
    ),
    (
        r'exec: "sh": executable file not found|\[FATAL tini .*exec sh failed',
        "the image has no `sh`, which starts what runs in it",
        "an image with a shell: `python:3.12-slim`, not a distroless one",
    ),
    (
        r"No such image: (?P<it>\S+)",
        "image `{it}` is not on the container engine",
        "`docker pull {it}` fetches it",
    ),
    (
        r"Minimum memory limit allowed is (?P<it>\w+)",
        "`memory` is below what the engine allows: {it}",
        "a larger `memory` in `gt.Resources(…)`",
    ),
    (
        r"setting cgroup.*memory|memory\.limit_in_bytes|container init was OOM-killed",
        "`memory` is too little even to start",
        "a larger `memory` in `gt.Resources(…)`",
    ),
    (
        r"docker-init|catatonit",
        "the engine has no init program for containers",
        "`apt install tini` (Docker) or `apt install catatonit` (podman)",
    ),
    (
        r"no space left on device",
        "no space left where the engine keeps its containers",
        "`docker system df` shows what takes it",
    ),
)


def told(text: str) -> tuple[str, str]:
    """An engine's words as ours, and a hint; words that are not known stay what they are."""
    for pattern, meaning, hint in _TABLE:
        found = re.search(pattern, text)
        if found:
            it = found.groupdict().get("it") or ""
            return meaning.format(it=it), hint.format(it=it)
    return text[:500], ""
