"""The state of the user's git repository, for the record."""

from __future__ import annotations

from typing import Any

from gputasks.proc import run_text

TIMEOUT_S = 20.0


def git_state(root: str) -> dict[str, Any] | None:
    """`{"sha", "branch", "dirty": [paths, at most 50], "submodules": [...]}`; None without git.

    One call of `git status --porcelain=v2`, whose format is meant for programs (git-status(1)).
    """
    answer = run_text(
        ["git", "-c", "core.quotePath=false", "status", "--porcelain=v2", "--branch", "-z",
         "--untracked-files=normal"],
        timeout_s=TIMEOUT_S, cwd=root,
    )  # fmt: skip
    if answer.returncode != 0:
        return None
    state: dict[str, Any] = {"sha": "", "branch": "", "dirty": [], "submodules": []}
    entries = iter(answer.out.split("\0"))
    for entry in entries:
        if entry.startswith("# branch.oid "):
            state["sha"] = entry.split(" ", 2)[2]
        elif entry.startswith("# branch.head "):
            state["branch"] = entry.split(" ", 2)[2]
        elif entry[:2] in ("1 ", "2 ", "u ", "? "):
            fields = entry.split(" ")
            skip = {"1": 8, "2": 9, "u": 10, "?": 1}[entry[0]]
            path = " ".join(fields[skip:])
            state["dirty"].append(path)
            if entry[0] != "?" and fields[2].startswith("S"):
                state["submodules"].append(path)
            if entry[0] == "2":
                next(entries, None)  # the old name of a rename
    state["dirty_count"] = len(state["dirty"])
    state["dirty"] = state["dirty"][:50]
    return state
