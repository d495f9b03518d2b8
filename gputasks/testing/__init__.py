"""Public fakes, to test a dodo.py, or gputasks itself, without torch and without GPUs.

`fake_torch` honours the contract of `python -m torch.distributed.run` as far as a script without
collectives can see it: `PET_*` options, one worker per rank in a session of its own, a rank's
variables, SIGTERM passed on, exit code 1 and a table of failures.  `fake_nvidia_smi` answers the
questions that gputasks asks the driver.
"""

from __future__ import annotations

import os
import shutil
import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def fake_torch(site_packages: str, *, version: str = "2.13.0") -> None:
    """Put a torch that is only its launcher into a site-packages folder."""
    package = os.path.join(site_packages, "torch", "distributed")
    os.makedirs(package, exist_ok=True)
    for folder in (os.path.dirname(package), package):
        with open(os.path.join(folder, "__init__.py"), "w", encoding="utf-8") as file:
            file.write("")
    here = os.path.dirname(os.path.abspath(__file__))
    shutil.copyfile(os.path.join(here, "elastic.py"), os.path.join(package, "run.py"))
    info = os.path.join(site_packages, f"torch-{version}.dist-info")
    os.makedirs(info, exist_ok=True)
    with open(os.path.join(info, "METADATA"), "w", encoding="utf-8") as file:
        file.write(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")


def fake_nvidia_smi(
    folder: str,
    gpus: Sequence[str],
    *,
    busy: Mapping[str, int] | None = None,
    usage: Mapping[str, tuple[int, int]] | None = None,
    driver: str = "580.65.06",
    compute_cap: str = "8.0",
) -> None:
    """Put an `nvidia-smi` into `folder`, which goes first on PATH.

    Asked in a loop, it repeats its answer ten times a second, whatever the interval.

    Args:
        folder: made when it is not there.
        gpus: UUIDs, in PCI order.
        busy: UUID -> pid of a foreign compute process.
        usage: UUID -> utilisation in percent, used memory in MiB; the others do nothing.
        driver: its version.
        compute_cap: compute capability of all GPUs.

    """
    os.makedirs(folder, exist_ok=True)
    query = "\n".join(f"{i}, {u}, Fake GPU, 40960, 3, [N/A]" for i, u in enumerate(gpus))
    listed = "\n".join(f"GPU {i}: Fake GPU (UUID: {u})" for i, u in enumerate(gpus))
    apps = "\n".join(f"{u}, {pid}" for u, pid in (busy or {}).items())
    samples = []
    for index, uuid in enumerate(gpus):
        used, memory = (usage or {}).get(uuid, (0, 3))
        line = f"{uuid}, {used}, {memory}, 40960, 61.25, 41"
        samples.append(f'case ",$ids," in ,,|*,{index},*|*,{uuid},*) echo "{line}" ;; esac')
    script = textwrap.dedent(
        """\
        #!/bin/sh
        ids=
        for word; do case "$word" in --id=*) ids=${word#--id=} ;; esac; done
        case "$*" in
        *--query-gpu=uuid,utilization.gpu*)
        while :; do
        @samples@
        case "$*" in *--loop=*) sleep 0.1 ;; *) exit 0 ;; esac
        done
        ;;
        *driver_version,compute_cap*) cat <<'END'
        @able@
        END
        ;;
        *--query-compute-apps*) cat <<'END'
        @apps@
        END
        ;;
        *-L*) cat <<'END'
        @listed@
        END
        ;;
        *) cat <<'END'
        @query@
        END
        ;;
        esac
        """
    )
    able = "\n".join(f"{i}, Fake GPU, {driver}, {compute_cap}" for i, _ in enumerate(gpus))
    answers = {
        "able": able,
        "apps": apps,
        "listed": listed,
        "query": query,
        "samples": "\n".join(samples),
    }
    for key, text in answers.items():
        script = script.replace(f"@{key}@", text)
    path = os.path.join(folder, "nvidia-smi")
    with open(path, "w", encoding="utf-8") as file:
        file.write(script)
    os.chmod(path, 0o755)  # noqa: S103  a program
