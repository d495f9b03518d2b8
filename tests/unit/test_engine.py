"""The engine's socket: who answers, who does not, and which of the reasons it was."""

from __future__ import annotations

import http.server
import os
import socket
import threading

import pytest

from gputasks.errors import ConfigError, MachineError
from gputasks.images.engine import Engine, EngineAnswerError, EngineDownError
from gputasks.images.hosts import parse_host, where_from


@pytest.fixture(autouse=True)
def no_docker_variables(monkeypatch, tmp_path):
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_TLS_VERIFY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))


@pytest.fixture
def served():
    """A loopback HTTP server with canned answers by path."""
    answers = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            status, body = answers.get(self.path, (404, b'{"message":"No such thing"}'))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_DELETE = do_GET  # noqa: N815  names of http.server

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield answers, f"tcp://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("unix:///run/x.sock", ("/run/x.sock", "", 0, False)),
        ("/run/x.sock", ("/run/x.sock", "", 0, False)),
        ("tcp://node:99", ("", "node", 99, False)),
        ("tcp://node", ("", "node", 2375, False)),
        ("http://[::1]:99/", ("", "::1", 99, False)),
        ("https://node", ("", "node", 2376, True)),
    ],
)
def test_hosts(host, address):
    assert tuple(parse_host(host)) == address


@pytest.mark.parametrize("host", ["ssh://me@node", "node", "tcp://", "tcp://a:b", "unix://", ""])
def test_hosts_of_other_forms_are_refused(host):
    with pytest.raises(ConfigError, match="no container engine can be reached"):
        parse_host(host)


def test_an_ssh_host_tells_the_way_round():
    with pytest.raises(ConfigError, match=r"ssh -N -L .* me@node`") as caught:
        parse_host("ssh://me@node", "DOCKER_HOST")
    assert caught.value.place == "$DOCKER_HOST"


def test_docker_host_then_context_then_the_usual_socket(monkeypatch, tmp_path):
    assert where_from() == ("unix:///var/run/docker.sock", "")
    from hashlib import sha256

    meta = tmp_path / "contexts" / "meta" / sha256(b"far").hexdigest()
    meta.mkdir(parents=True)
    (meta / "meta.json").write_text('{"Endpoints": {"docker": {"Host": "tcp://far:1"}}}')
    (tmp_path / "config.json").write_text('{"currentContext": "far"}')
    assert where_from() == ("tcp://far:1", "docker context")
    monkeypatch.setenv("DOCKER_HOST", "unix:///x")
    assert where_from() == ("unix:///x", "DOCKER_HOST")


def test_no_socket_is_one_line():
    with pytest.raises(EngineDownError, match=r"no container engine at `unix:///nope/d\.sock`"):
        Engine("unix:///nope/d.sock").ping()


def test_docker_host_is_named_when_it_leads_nowhere(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///nope/d.sock")
    with pytest.raises(MachineError, match=r"from `DOCKER_HOST`\): there is no `/nope/d\.sock`"):
        Engine().ping()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may use every socket")
def test_no_permission_says_so(tmp_path):
    path = str(tmp_path / "d.sock")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(path)
        sock.listen()
        os.chmod(path, 0)
        with pytest.raises(EngineDownError, match="no permission for"):
            Engine(f"unix://{path}").ping()


def test_permission_is_told_apart_from_absence():
    error = Engine("unix:///x")._down(*Engine("unix:///x")._why(PermissionError(13, "denied")))
    assert "no permission for `/x`" in error.message
    assert "usermod -aG docker" in error.hint


def test_what_is_no_engine_is_told_apart(tmp_path, served):
    answers, host = served
    answers["/_ping"] = (200, b"<html>")
    with pytest.raises(EngineDownError, match="what answers is no container engine"):
        Engine(host).ping()
    (tmp_path / "file").write_text("")
    with pytest.raises(EngineDownError, match="no container engine"):
        Engine(f"unix://{tmp_path}/file").ping()


def test_answers_are_json(served):
    answers, host = served
    answers["/_ping"] = (200, b"OK")
    answers["/version"] = (200, b'{"Components": [{"Name": "Podman Engine"}]}')
    answers["/images/a/b:c/json"] = (200, b'{"Id": "sha256:1"}')
    engine = Engine(host)
    engine.ping()
    assert engine.is_podman()
    assert engine.inspect_image("a/b:c") == {"Id": "sha256:1"}
    assert engine.inspect_image("nope") is None


def test_a_refusal_is_one_line_with_the_engines_words(served):
    answers, host = served
    answers["/x?y=1"] = (500, b'{"message": "disk\\nfull"}')
    with pytest.raises(EngineAnswerError, match="refused POST `/x`: disk full") as caught:
        Engine(host).post("/x?y=1", {})
    assert caught.value.status == 500


def test_a_slow_engine_is_not_waited_for_forever(tmp_path):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tmp_path / "d.sock"))
        sock.listen()
        with pytest.raises(EngineDownError, match=r"no answer within 0\.1 s"):
            Engine(f"unix://{tmp_path}/d.sock", timeout_s=0.1).ping()
