"""Holds one container: makes it, tells it its environment, ends it, and says how it ended.

It runs under the guard in the place of the job, so that whatever ends a job ends a container too.
Should this process be killed, the container's stdin ends, and what listens there (`launch.docker`)
ends the container; it then only has to be removed, by the driver or by the next run.

Standard library, Linux, Python 3.8 or later; no `http.client`, whose import costs more than the
requests.

stdin   one JSON object: `socket` (path, or [host, port]), `name`, `create` (the engine's request),
        `optional` (sources whose mounts may be left out when they vanish), `script` (sent to the
        container's stdin), `output` (its log), `hidden` (what it prints goes to our stdout, which
        is a pipe of the guard's then), `grace_s`, `driver` ([pid, start time]), `status`.
exit    the container's exit code, or death by the signal that ended it; 125 when nothing started.
status  a JSON file: id, exit_code, oom_killed, error, removed.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
AS_SIGNALS = (1, 2, 3, 4, 6, 7, 8, 9, 11, 13, 15)
LOST_GRACE_S = 25.0
"""A little less than the guard's, which kills this process when it is over."""
NOT_STARTED = 125
VANISHED = "bind source path does not exist: "


PIPES = "GPUTASKS_LOG_PIPES"
"""Folder of the ranks' pipes, see `pump`."""


class RefusedError(Exception):
    """The engine refused, or does not answer."""


class Engine:
    """Requests to one engine, each on a connection of its own."""

    def __init__(self, address: Any) -> None:
        self.address = address

    def send(self, method: str, path: str, body: Any = None, *, upgrade: bool = False) -> Any:
        """Send a request; the socket on which its answer comes."""
        data = b"" if body is None else json.dumps(body).encode("utf-8", "surrogateescape")
        head = "%s %s HTTP/1.%d\r\nHost: docker\r\nContent-Length: %d\r\n" % (
            method,
            path,
            1 if upgrade else 0,
            len(data),
        )
        if body is not None:
            head += "Content-Type: application/json\r\n"
        if upgrade:
            head += "Connection: Upgrade\r\nUpgrade: tcp\r\n"
        try:
            if isinstance(self.address, str):
                sock = socket.socket(socket.AF_UNIX)
                sock.connect(self.address)
            else:
                sock = socket.create_connection(tuple(self.address))
            sock.sendall(head.encode() + b"\r\n" + data)
        except OSError as error:
            raise RefusedError("the container engine is gone: %s" % error) from None
        return sock

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The answer, parsed."""
        status, text = parse(read_all(self.send(method, path, body)))
        if status >= 400 or status == 0:
            raise RefusedError(message(text) or "the container engine is gone")
        return json.loads(text) if text else None

    def attach(self, name: str) -> Any:
        """A socket that is the container's stdin."""
        path = "/containers/%s/attach?stream=1&stdin=1" % name
        sock = self.send("POST", path, upgrade=True)
        head = b""
        while b"\r\n\r\n" not in head:
            part = sock.recv(1)  # what follows the head is no longer HTTP
            if not part:
                break
            head += part
        status, _ = parse(head)
        if status not in (101, 200):
            raise RefusedError("the container engine refused its stdin (status %d)" % status)
        return sock


def read_all(sock: Any) -> bytes:
    """All that comes until the other side closes."""
    parts = []
    try:
        while True:
            part = sock.recv(65536)
            if not part:
                break
            parts.append(part)
    except OSError:
        pass
    sock.close()
    return b"".join(parts)


def parse(answer: bytes) -> Tuple[int, bytes]:
    """Status and body of an answer; status 0 when it is none."""
    head, _, body = answer.partition(b"\r\n\r\n")
    words = head.split(None, 2)
    known = len(words) > 1 and words[0].startswith(b"HTTP/") and words[1].isdigit()
    return (int(words[1]) if known else 0), body


def quoted(text: str) -> str:
    """For sh."""
    return "'" + text.replace("'", "'\"'\"'") + "'"


def message(text: bytes) -> str:
    """What an error answer says."""
    try:
        said = json.loads(text)["message"]
    except (ValueError, KeyError, TypeError):
        said = text.decode("utf-8", "replace")
    return " ".join(str(said).split())


def start_time(pid: int) -> Optional[str]:
    """Field 22 of /proc/PID/stat, which tells a pid from its successor; None when it is gone."""
    try:
        with open("/proc/%d/stat" % pid, errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


class Holder:
    """One container from its making to its removal."""

    def __init__(self, order: Dict[str, Any]) -> None:
        self.order = order
        self.engine = Engine(order["socket"])
        self.id = ""
        self.said: Dict[str, Any] = {"id": "", "exit_code": None, "oom_killed": False, "error": ""}
        self.stopping = False
        self.kill_at: Optional[float] = None
        self.killed = False
        self.pipes = ""
        self.printed: Optional[int] = None
        self.signals, write = os.pipe()
        os.set_blocking(self.signals, False)
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        for signum in STOPPING:
            signal.signal(signum, lambda _number, _frame: None)

    def run(self) -> int:
        """All of it; the exit code."""
        stdin = None
        try:
            if self.order.get("hidden"):
                self.print_into_pipes()
            self.make()
            stdin = self.engine.attach(self.id)
            if self.signalled():
                return 128 + signal.SIGTERM
            self.engine.ask("POST", "/containers/%s/start" % self.id)
            wait = self.engine.send("POST", "/containers/%s/wait" % self.id)
            try:
                stdin.sendall(self.script().encode("utf-8", "surrogateescape"))
            except OSError:
                pass  # it has ended already
            self.watch(wait)
            return self.ended()
        except RefusedError as error:
            self.said["error"] = str(error)
            return NOT_STARTED
        finally:
            self.remove()
            if self.printed is not None:
                self.pass_on()
                os.unlink(os.path.join(self.pipes, "container"))
                if not os.environ.get(PIPES):
                    os.rmdir(self.pipes)
            if stdin is not None:
                stdin.close()
            self.tell()

    def print_into_pipes(self) -> None:
        """Make a named pipe for what the container prints, beside those of the ranks if any."""
        folder = os.environ.get(PIPES) or ""
        if not folder:
            import tempfile

            folder = tempfile.mkdtemp(prefix="gputasks-")
        self.pipes = folder
        path = os.path.join(self.pipes, "container")
        os.mkfifo(path, 0o600)
        self.printed = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        mount = {"Type": "bind", "Source": self.pipes, "Target": self.pipes, "ReadOnly": False}
        self.order["create"]["HostConfig"]["Mounts"].append(mount)

    def script(self) -> str:
        """Where to print, then the environment."""
        if self.printed is None:
            return "exec >>%s 2>&1\n%s" % (quoted(self.order["output"]), self.order["script"])
        first = "exec >%s 2>&1\n" % quoted(os.path.join(self.pipes, "container"))
        if os.environ.get(PIPES):
            first += "export %s=%s\n" % (PIPES, quoted(self.pipes))
        return first + str(self.order["script"])

    def pass_on(self) -> None:
        """Move what was printed to our own output."""
        try:
            while self.printed is not None:
                data = os.read(self.printed, 65536)
                while data:
                    data = data[os.write(1, data) :]
        except OSError:
            pass  # there is no more

    def make(self) -> None:
        """Create the container, as often as a file that it would have seen vanishes meanwhile."""
        body = self.order["create"]
        me = os.getpid()
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
        body["Labels"]["io.gputasks.owner"] = "%s:%d:%s" % (boot, me, start_time(me))
        while True:
            try:
                made = self.engine.ask(
                    "POST", "/containers/create?name=%s" % self.order["name"], body
                )
                break
            except RefusedError as error:
                gone = str(error).partition(VANISHED)[2]
                mounts: List[Dict[str, Any]] = body["HostConfig"]["Mounts"]
                left = [m for m in mounts if m["Source"] != gone]
                if gone not in self.order["optional"] or len(left) == len(mounts):
                    raise
                body["HostConfig"]["Mounts"] = left
        self.id = self.said["id"] = made["Id"]

    def watch(self, wait: Any) -> None:
        """Until the container has ended; stop it when told so."""
        answer = b""
        while True:
            left = None if self.kill_at is None else max(0.0, self.kill_at - time.monotonic())
            sources = [wait, self.signals, *([] if self.printed is None else [self.printed])]
            ready = select.select(sources, [], [], left)[0]
            self.pass_on()
            if wait in ready:
                part = wait.recv(65536)
                if not part:
                    break
                answer += part
                continue
            if self.signalled():
                self.stop()
            if self.kill_at is not None and time.monotonic() >= self.kill_at:
                self.send(signal.SIGKILL)
                self.kill_at = None
        wait.close()
        self.pass_on()
        if not parse(answer)[1]:
            raise RefusedError("the container engine ended while the container ran")

    def signalled(self) -> bool:
        """True when a signal has asked to stop."""
        try:
            return bool(os.read(self.signals, 4096))
        except OSError:
            return False

    def stop(self) -> None:
        """SIGTERM, once, and the end of patience."""
        if self.stopping:
            return
        self.stopping = True
        grace = float(self.order["grace_s"])
        pid, started = self.order["driver"]
        if start_time(pid) != started:
            grace = min(grace, LOST_GRACE_S)
        self.kill_at = time.monotonic() + grace
        self.send(signal.SIGTERM)

    def send(self, signum: int) -> None:
        """A signal to the container, which may have ended."""
        try:
            self.engine.ask("POST", "/containers/%s/kill?signal=%d" % (self.id, signum))
        except RefusedError:
            pass

    def ended(self) -> int:
        """Note down how it ended, and what it printed before its log was open."""
        state = self.engine.ask("GET", "/containers/%s/json" % self.id)["State"]
        code = int(state["ExitCode"])
        self.said.update(exit_code=code, oom_killed=bool(state.get("OOMKilled")))
        if code:
            self.keep_early_words()
        return code

    def keep_early_words(self) -> None:
        """Copy what the engine caught: only what came before the output was redirected."""
        path = "/containers/%s/logs?stdout=1&stderr=1&tail=100" % self.id
        _, data = parse(read_all(self.engine.send("GET", path)))
        words = b""
        while len(data) >= 8:
            size = int.from_bytes(data[4:8], "big")
            words, data = words + data[8 : 8 + size], data[8 + size :]
        if words:
            try:
                with open(self.order["output"], "ab") as file:
                    file.write(words)
            except OSError:
                pass

    def remove(self) -> None:
        """Remove the container; all that is worth keeping has been kept."""
        try:
            if self.id:
                self.engine.ask("DELETE", "/containers/%s?force=1&v=1" % self.id)
            self.said["removed"] = True
        except RefusedError:
            self.said["removed"] = False

    def tell(self) -> None:
        """Write the status whole."""
        path = self.order["status"]
        try:
            with open(path + ".tmp", "w") as file:
                json.dump(self.said, file)
            os.rename(path + ".tmp", path)
        except OSError:
            pass


def leave(code: int) -> None:
    """End as the container did: a guard, and a shell, tell death by a signal from an exit code."""
    if code - 128 in AS_SIGNALS:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(code - 128, signal.SIG_DFL) if code - 128 != signal.SIGKILL else None
        os.kill(os.getpid(), code - 128)
    sys.exit(code)


if __name__ == "__main__":
    leave(Holder(json.load(sys.stdin)).run())
