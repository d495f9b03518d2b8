"""Short helper programs: git, nvidia-smi, another interpreter."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Completed(NamedTuple):
    """What a helper said.

    Args:
        returncode: 127 when the program is missing, 124 when it took too long.
        out: its stdout; bytes that are no UTF-8 are replaced.
        err: its stderr, or why it could not be run.
    """

    returncode: int
    out: str
    err: str


def run_text(
    argv: Sequence[str],
    *,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    input: str | None = None,  # noqa: A002  subprocess's name for it
) -> Completed:
    """Run a helper to its end, without a terminal and without the caller's stdin.

    Never raises for what the program does or that it is not there.
    """
    import subprocess

    try:
        done = subprocess.run(
            list(argv),
            env=env,
            cwd=cwd,
            timeout=timeout_s,
            capture_output=True,
            check=False,
            # Nothing to say is an empty pipe: never the terminal.
            input=b"" if input is None else input.encode(),
        )
    except FileNotFoundError as error:
        return Completed(127, "", f"{error.strerror}: {error.filename}")
    except subprocess.TimeoutExpired:
        return Completed(124, "", f"{argv[0]} did not answer within {timeout_s:g} s")
    except OSError as error:
        return Completed(126, "", f"{error.strerror}: {error.filename}")
    return Completed(
        done.returncode,
        done.stdout.decode("utf-8", "replace"),
        done.stderr.decode("utf-8", "replace"),
    )
