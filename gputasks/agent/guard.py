"""The guard: starts one job and sees to it that nothing of it lives on.

Standard library, Linux, Python 3.8 or later: also to be sent to a machine without gputasks.

Two processes stand between the driver and the job: *guardian* -> *supervisor* -> job.  Both are
subreapers: whatever a worker double-forks or puts into a session of its own comes back to the
nearer of them when its parent dies, so killing all descendants until `wait` says ECHILD is a proof
that nothing is left.  Either of them survives the other.

stdin   one line of JSON (argv, env, cwd, output, grace_s, status, driver, hide), then single bytes:
        `T` stop with grace, `K` kill.  Its end means that the driver is gone.
stdout  the status as one line of JSON, also written whole to the file `status`: returncode,
        stopped, swept, error, duration_s.

Lock files that the driver passes on stay open in both processes, so that a lock ends with the last
worker; the job itself gets none of them.

A job that knows secrets (`hide`: their forms, the logs of its ranks, the attempt's folder) prints
into pipes, see `pump`.  The guardian, which has nothing else to do, moves their bytes into the
logs; the supervisor does when the guardian is dead.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Set, Tuple

    from gputasks.agent.pump import Pump
    from gputasks.agent.redact import Redactor

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LIBC = ctypes.CDLL(None, use_errno=True)
STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
TICK_S = 0.02
LOOK_S = 0.25
LOST_GRACE_S = 30.0
"""A driver that is gone leaves at most this long for a checkpoint."""


def prctl(option: int, value: int) -> None:
    """Set one attribute of this process (Linux)."""
    LIBC.prctl(option, value, 0, 0, 0)


def children(pid: int) -> List[int]:
    """Children of all threads of a process."""
    found: List[int] = []
    try:
        for task in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/children" % (pid, task)) as file:
                found += [int(p) for p in file.read().split()]
    except (OSError, ValueError):
        pass  # it has just ended; its children are somebody else's now, and found there
    return found


def descendants(pid: int) -> List[int]:
    """Children, their children, and so on."""
    todo, seen = children(pid), []
    while todo:
        child = todo.pop()
        seen.append(child)
        todo += children(child)
    return seen


def send(pid: int, signum: int) -> None:
    """A signal to a process that may be gone."""
    try:
        os.kill(pid, signum)
    except OSError:
        pass


def reap(wanted: Optional[int]) -> Tuple[Optional[int], bool]:
    """Collect the dead: the exit code of one of them if it is among them; is no child left."""
    code = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code, True
        if pid == 0:
            return code, False
        if pid == wanted:
            code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def sweep(wanted: Optional[int] = None) -> Tuple[Optional[int], int]:
    """SIGKILL every descendant until the kernel says that there is none; code of one, and count."""
    me = os.getpid()
    killed: Set[int] = set()
    code = None
    while True:
        for pid in descendants(me):
            killed.add(pid)
            send(pid, signal.SIGKILL)
        found, none_left = reap(wanted)
        code = found if code is None else code
        if none_left:
            return code, len(killed)
        time.sleep(TICK_S / 2)


def start_time(pid: int) -> Optional[str]:
    """Field 22 of /proc/PID/stat, which tells a pid from its successor; None when it is gone."""
    try:
        with open("/proc/%d/stat" % pid, errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def spawn(spec: Dict[str, Any], hidden: Optional[Hidden]) -> Tuple[int, str]:
    """Fork and exec the job: its pid, and why it could not be started."""
    parent = os.getpid()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            become(spec, parent, writer, hidden)
        except BaseException as error:  # noqa: BLE001  a forked child must not return
            missing = isinstance(error, FileNotFoundError)
            what = getattr(error, "filename", None) or spec["argv"][0]
            text = "%s: `%s`" % (getattr(error, "strerror", None) or error, what)
            os.write(writer, text.encode("utf-8", "replace")[:4000])
            os._exit(127 if missing else 126)
    os.close(writer)
    said = b""
    while True:
        part = os.read(reader, 4096)
        if not part:
            break
        said += part
    os.close(reader)
    return pid, said.decode("utf-8", "replace")


def become(spec: Dict[str, Any], parent: int, writer: int, hidden: Optional[Hidden]) -> None:
    """In the child: turn into the job."""
    os.setsid()
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(125)
    for signum in (*STOPPING, signal.SIGPIPE):
        signal.signal(signum, signal.SIG_DFL)
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("500")  # under memory pressure the job goes before its guard
    except OSError:
        pass
    null = os.open(os.devnull, os.O_RDONLY)
    out = os.open(spec["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    if hidden is not None:
        out = hidden.pump.writer
    for source, target in ((null, 0), (out, 1), (out, 2)):
        os.dup2(source, target)
    # The writer closes itself at exec, which tells the parent that all went well.
    os.closerange(3, writer)
    os.closerange(writer + 1, 4096)
    os.chdir(spec["cwd"])
    os.execvpe(spec["argv"][0], spec["argv"], spec["env"])  # noqa: S606  no shell, on purpose


class Hidden:
    """What must not be seen of a job, and the ways by which it would be."""

    def __init__(self, spec: Dict[str, Any]) -> None:
        if TYPE_CHECKING:
            from gputasks.agent import pump, redact
        else:
            sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
            import pump
            import redact

            del sys.path[0]
        order = spec["hide"]
        self.redactor: Redactor = redact.Redactor(f.encode("latin-1") for f in order["forms"])
        self.pump: Pump = pump.Pump(self.redactor, spec["output"], order["rank_logs"])
        self._clean = redact.clean_folder
        self._folder = order["folder"]
        self._events = order["events"]
        self._logs = [spec["output"], *order["rank_logs"]]
        self._driver = spec["driver"]
        if self.pump.folder:
            spec["env"][pump.PIPES] = self.pump.folder

    def watch(self, alive: int) -> None:
        """Move bytes until the last process that has the other end of `alive` is dead."""
        while not self.pump.turn(alive, timeout_s=60.0):
            pass

    def finish(self) -> None:
        """When all is swept: the last bytes, and the files that scripts wrote themselves.

        A driver that lives still reads the events, and cleans them when it has.
        """
        self.pump.finish()
        pid, started = self._driver
        lives = start_time(pid) == started
        without = [*self._logs, self._events] if lives else self._logs
        self._clean(self._folder, self.redactor, without=without)


class Supervisor:
    """Owns the job."""

    def __init__(
        self, spec: Dict[str, Any], orders: bytes, guardian: int, hidden: Optional[Hidden]
    ) -> None:
        self.spec = spec
        self.hidden = hidden
        self.orders = orders
        self.guardian = guardian
        self.control: Optional[int] = 0
        self.pid = 0
        self.stopped = ""
        self.kill_at: Optional[float] = None
        self.grace = float(spec["grace_s"])
        self.lost_grace = min(self.grace, LOST_GRACE_S)

    def run(self) -> Dict[str, Any]:
        """Start the job, wait for its end or bring it about, sweep; the status."""
        began = time.monotonic()
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        signalled: List[int] = []
        for signum in STOPPING:
            signal.signal(signum, lambda number, _frame: signalled.append(number))
        self.pid, error = spawn(self.spec, self.hidden)
        if self.hidden is not None:
            error = self.hidden.redactor.text(error)
        code, looked = None, 0.0
        while code is None and (self.kill_at is None or time.monotonic() < self.kill_at):
            code, _ = reap(self.pid)
            if code is not None:
                break
            self.listen()
            self.stand_in()
            if signalled:
                self.look_around()  # the signal may be the kernel's word that the guardian died
                self.stop("guard signalled", self.grace)
            if time.monotonic() - looked > LOOK_S:
                looked = time.monotonic()
                self.look_around()
        found, swept = sweep(self.pid)
        if code is None:
            code = -signal.SIGKILL if found is None else found
        if self.hidden is not None and os.getppid() != self.guardian:
            self.hidden.finish()
        return status(code, self.stopped, swept, error, time.monotonic() - began)

    def stop(self, why: str, grace: float) -> None:
        """SIGTERM at the first call; a later call can only bring the end nearer."""
        end = time.monotonic() + grace
        if not self.stopped:
            self.stopped, self.kill_at = why, end
            send(self.pid, signal.SIGTERM)
        elif self.kill_at is None or end < self.kill_at:
            self.kill_at = end

    def listen(self) -> None:
        """Take orders, or notice that nobody can give any."""
        data, self.orders = self.orders, b""
        if not data:
            watched = [] if self.control is None else [self.control]
            if not select.select(watched, [], [], TICK_S)[0] or self.control is None:
                return
            data = os.read(self.control, 64)
            if not data:
                self.control = None
                self.stop("driver lost", self.lost_grace)
        if b"K" in data:
            self.stop("killed", 0.0)
        elif b"T" in data:
            self.stop("terminated", self.grace)

    def stand_in(self) -> None:
        """Move the workers' bytes when the guardian is dead."""
        if self.hidden is not None and os.getppid() != self.guardian:
            self.hidden.pump.turn(timeout_s=0.0)

    def look_around(self) -> None:
        """Notice the deaths that no pipe tells: processes the driver forked hold it open too."""
        if os.getppid() != self.guardian:
            self.stop("guard died", self.lost_grace)
        pid, started = self.spec["driver"]
        if start_time(pid) != started:
            self.stop("driver lost", self.lost_grace)


def status(code: int, stopped: str, swept: int, error: str, duration: float) -> Dict[str, Any]:
    """The guard's last word."""
    return {
        "returncode": code,
        "stopped": stopped,
        "swept": swept,
        "error": error,
        "duration_s": round(duration, 3),
    }


def tell(said: Dict[str, Any], path: str) -> None:
    """Say it on stdout and in the file; all is swept by now, so nothing depends on success."""
    line = json.dumps(said).encode() + b"\n"
    try:
        os.write(1, line)
    except OSError:
        pass
    try:
        if path:
            fd = os.open(path + ".tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            try:
                os.write(fd, line)
                os.fsync(fd)
            finally:
                os.close(fd)
            os.rename(path + ".tmp", path)
    except OSError:
        pass


def read_order() -> Tuple[Dict[str, Any], bytes]:
    """The line of JSON, and the orders that came with it."""
    data = b""
    while b"\n" not in data:
        part = os.read(0, 65536)
        if not part:
            sys.exit(0)  # the driver died before it could say what to start
        data += part
    line, _, rest = data.partition(b"\n")
    return json.loads(line.decode("utf-8", "surrogatepass")), rest


def main() -> None:
    """Be the guardian."""
    spec, rest = read_order()
    os.setsid()
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    guardian = os.getpid()
    try:
        hidden = Hidden(spec) if spec.get("hide") else None
    except OSError as error:
        tell(status(126, "", 0, "no pipes for the logs: %s" % error, 0.0), spec["status"])
        return
    dead, alive = os.pipe()
    supervisor = os.fork()
    if supervisor == 0:
        os.close(dead)
        try:
            prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
            tell(Supervisor(spec, rest, guardian, hidden).run(), spec["status"])
        except BaseException as error:  # noqa: BLE001  a forked child must not return
            _, swept = sweep()
            tell(status(-signal.SIGKILL, "guard died", swept, repr(error), 0.0), spec["status"])
        os._exit(0)
    for signum in STOPPING:
        signal.signal(signum, lambda _number, _frame: send(supervisor, signal.SIGTERM))
    os.close(alive)
    if hidden is not None:
        hidden.watch(dead)
    _, ended = os.waitpid(supervisor, 0)
    _, swept = sweep()
    if hidden is not None:
        hidden.finish()
    if ended:
        tell(status(-signal.SIGKILL, "guard died", swept, "", 0.0), spec["status"])


if __name__ == "__main__":
    main()
