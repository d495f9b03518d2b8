"""Whether the kernel killed somebody for lack of memory."""

from __future__ import annotations

FILES = ("/sys/fs/cgroup{}/memory.events", "/sys/fs/cgroup/memory{}/memory.oom_control")
"""cgroup v2, cgroup v1; both have a line `oom_kill N`."""


def count_oom_kills(proc: str = "/proc/self/cgroup") -> int | None:
    """Processes that the kernel killed in this cgroup since it exists; None when nobody counts.

    Taken before and after an attempt, the difference says what a SIGKILL was.
    """
    for path in _candidates(proc):
        try:
            with open(path, encoding="ascii", errors="replace") as file:
                words = [line.split() for line in file]
        except OSError:
            continue
        for pair in words:
            if len(pair) == 2 and pair[0] == "oom_kill" and pair[1].isdigit():
                return int(pair[1])
    return None


def _candidates(proc: str) -> list[str]:
    try:
        with open(proc, encoding="utf-8", errors="replace") as file:
            lines = [line.strip().split(":", 2) for line in file]
    except OSError:
        return []
    paths = []
    for parts in lines:
        if len(parts) != 3:
            continue
        _, controllers, group = parts
        form = FILES[0] if controllers == "" else FILES[1]
        if controllers == "" or "memory" in controllers.split(","):
            # Inside a container the group is the root of what can be seen.
            paths += [form.format(group.rstrip("/")), form.format("")]
    return paths
