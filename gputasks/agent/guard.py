"""The guard: starts one job and sees to it that nothing of it lives on.  Standard library, >= 3.8.

Two processes stand between the driver and the job: *guardian* -> *supervisor* -> job.  Both are
subreapers: whatever a worker double-forks or puts into a session of its own comes back to the
nearest of them when its parent dies, so "kill all descendants until wait says ECHILD" is a proof
that nothing is left.  Either survives the other.

stdin   one line of JSON (argv, env, cwd, output, grace_s, status, fds, driver), then single bytes:
        `T` stop with grace, `K` kill; end of file means that the driver is gone.
stdout  the status as one line of JSON, also written whole to the file `status`.
"""

import ctypes
import json
import os
import select
import signal
import sys
import time

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LIBC = ctypes.CDLL(None, use_errno=True)
TICK_S = 0.02
LOST_GRACE_S = 30.0
"""A driver that died leaves at most this long for a checkpoint."""


def prctl(option, value):
    LIBC.prctl(option, value, 0, 0, 0)


def children(pid):
    found = []
    try:
        for task in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/children" % (pid, task)) as file:
                found += [int(p) for p in file.read().split()]
    except (OSError, ValueError):
        pass
    return found


def descendants(pid):
    todo, seen = children(pid), []
    while todo:
        child = todo.pop()
        seen.append(child)
        todo += children(child)
    return seen


def send(pid, signum):
    try:
        os.kill(pid, signum)
    except OSError:
        pass


def reap(known):
    """Collect the dead; exit codes of `known` pids; None when no child is left."""
    codes = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return codes, True
        if pid == 0:
            return codes, False
        if pid in known:
            codes[pid] = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def sweep(known, spare=()):
    """SIGKILL every descendant until none is left (those spared aside); codes and how many."""
    me, killed, codes = os.getpid(), set(), {}
    while True:
        left = [p for p in descendants(me) if p not in spare]
        for pid in left:
            killed.add(pid)
            send(pid, signal.SIGKILL)
        new, none = reap(known)
        codes.update(new)
        if none or (spare and not left):
            return codes, len(killed)
        time.sleep(TICK_S / 2)


def start_time(pid):
    """Field 22 of /proc/PID/stat: tells a pid from its successor; None when it is gone."""
    try:
        with open("/proc/%d/stat" % pid) as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def spawn(spec, parent):
    """Fork and exec the job; its pid, and the text of an error that kept it from starting."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 126
        try:
            os.setsid()
            prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != parent:
                os._exit(125)
            for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
                signal.signal(signum, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            try:
                with open("/proc/self/oom_score_adj", "w") as file:
                    file.write("500")  # the kernel's choice under memory pressure: the job first
            except OSError:
                pass
            null = os.open(os.devnull, os.O_RDONLY)
            out = os.open(spec["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(null, 0)
            os.dup2(out, 1)
            os.dup2(out, 2)
            # The writer is close-on-exec and stays until then; lock files must not get to the job.
            os.closerange(3, writer)
            os.closerange(writer + 1, 4096)
            os.chdir(spec["cwd"])
            env = {k: v for k, v in spec["env"].items()}
            code = 127
            os.execvpe(spec["argv"][0], spec["argv"], env)
        except BaseException as error:
            strerror = getattr(error, "strerror", None) or str(error)
            name = getattr(error, "filename", None) or spec["argv"][0]
            if getattr(error, "errno", None) == 13:
                code = 126
            os.write(writer, ("%s: `%s`" % (strerror, name)).encode("utf-8", "replace")[:4000])
        os._exit(code)
    os.close(writer)
    text = b""
    while True:
        part = os.read(reader, 4096)
        if not part:
            break
        text += part
    os.close(reader)
    return pid, text.decode("utf-8", "replace")


class Supervisor:
    """Owns the job."""

    def __init__(self, spec, control, guardian):
        self.spec = spec
        self.control = control
        self.guardian = guardian
        self.stopped = ""
        self.kill_at = None
        self.asked = None

    def on_signal(self, _signum, _frame):
        if self.asked is None:
            self.asked = "guard signalled"

    def stop(self, why, grace):
        now = time.monotonic()
        if not self.stopped:
            self.stopped = why
            self.kill_at = now + grace
            send(self.pid, signal.SIGTERM)
        else:
            self.kill_at = min(self.kill_at, now + grace)

    def run(self):
        began = time.monotonic()
        grace = float(self.spec["grace_s"])
        lost = min(grace, LOST_GRACE_S)
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(signum, self.on_signal)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        self.pid, error = spawn(self.spec, os.getpid())
        code = None
        looked = 0.0
        while code is None:
            codes, _ = reap({self.pid})
            code = codes.get(self.pid)
            if code is not None:
                break
            self.listen(grace, lost)
            if self.asked:
                self.stop(self.asked, grace)
            if time.monotonic() - looked > 0.25:
                looked = time.monotonic()
                if os.getppid() != self.guardian:
                    self.stop("guard died", lost)
                if self.driver_gone():
                    self.stop("driver lost", lost)
            if self.kill_at is not None and time.monotonic() >= self.kill_at:
                if self.kill_at == 0:
                    self.stopped = "killed"
                break
        codes, swept = sweep({self.pid})
        if code is None:
            code = codes.get(self.pid, -9)
        return {
            "returncode": code,
            "stopped": self.stopped,
            "swept": swept,
            "error": error,
            "duration_s": round(time.monotonic() - began, 3),
        }

    def listen(self, grace, lost):
        watch = [self.control] if self.control is not None else []
        if not select.select(watch, [], [], TICK_S)[0]:
            return
        data = os.read(self.control, 64)
        if not data:
            self.control = None
            self.stop("driver lost", lost)
        if b"T" in data:
            self.stop("terminated", grace)
        if b"K" in data:
            self.stop("killed", 0)
            self.kill_at = 0

    def driver_gone(self):
        """The pipe alone does not tell: processes that the driver forked hold it open as well."""
        pid, started = self.spec["driver"]
        return start_time(pid) != started


def tell(status, path):
    """Write the status; whatever goes wrong here leaves nothing alive, all is swept already."""
    line = json.dumps(status).encode() + b"\n"
    try:
        os.write(1, line)
    except OSError:
        pass
    if not path:
        return
    try:
        fd = os.open(path + ".tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            os.write(fd, line)
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(path + ".tmp", path)
    except OSError:
        pass


def read_line(fd):
    data = b""
    while not data.endswith(b"\n"):
        part = os.read(fd, 1 if len(data) > 1 << 24 else 65536)
        if not part:
            return None, b""
        data += part
        if b"\n" in part:
            break
    line, _, rest = data.partition(b"\n")
    return line, rest


def main():
    line, rest = read_line(0)
    if line is None:
        return 0
    spec = json.loads(line.decode("utf-8", "surrogatepass"))
    os.setsid()
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    guardian = os.getpid()
    supervisor = os.fork()
    if supervisor == 0:
        try:
            prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
            boss = Supervisor(spec, 0, guardian)
            if rest:
                boss.asked = "terminated" if b"T" in rest else "killed"
            status = boss.run()
            if boss.stopped == "guard signalled" and os.getppid() != guardian:
                status["stopped"] = "guard died"
            tell(status, spec["status"])
            os._exit(0)
        except BaseException as error:
            sweep(())
            tell(
                {
                    "returncode": -9,
                    "stopped": "guard died",
                    "swept": 0,
                    "duration_s": 0,
                    "error": repr(error),
                },
                spec["status"],
            )
            os._exit(1)
    # The driver must see the end of the pipe when the supervisor ends, so only that one listens.
    signalled = []
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, lambda *_: (signalled.append(1), send(supervisor, signal.SIGTERM)))
    while True:
        try:
            pid, status = os.waitpid(supervisor, 0)
            break
        except InterruptedError:
            continue
    if status:
        _, swept = sweep(())
        tell(
            {
                "returncode": -9,
                "stopped": "guard died",
                "swept": swept,
                "duration_s": 0,
                "error": "",
            },
            spec["status"],
        )
    else:
        sweep(())
    return 0


if __name__ == "__main__":
    sys.exit(main())
