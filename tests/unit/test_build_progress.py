"""What builders say, as steps and failures; recorded from the engines and buildx 0.13 and 0.29."""

from __future__ import annotations

import base64
import json

import pytest

from gputasks.images.progress import ClassicProgress, RawJson, Step

CLASSIC = [
    {"stream": "Step 1/3 : FROM base:1"},
    {"stream": "\n"},
    {"stream": " ---> 39864be10f8d\n"},
    {"stream": "Step 2/3 : COPY a /a"},
    {"stream": "\n"},
    {"stream": " ---> Using cache\n"},
    {"stream": " ---> 1234\n"},
    {"stream": "Step 3/3 : RUN make"},
    {"stream": "\n"},
    {"stream": " ---> Running in 5678\n"},
    {"stream": "\x1b[91mno ru"},
    {"stream": "le\n\x1b[0m"},
    {"stream": "last words"},
]
FAILED = {"errorDetail": {"code": 7, "message": "The command '/bin/sh -c make' returned a non-zero code: 7"},
          "error": "The command '/bin/sh -c make' returned a non-zero code: 7"}  # fmt: skip


def classic(events):
    steps, log = [], []
    progress = ClassicProgress(steps.append, log.append)
    for event in events:
        progress.take(event)
    return progress, steps, "".join(log)


def test_classic_steps_and_failure():
    progress, steps, log = classic([*CLASSIC, FAILED])
    assert steps == [
        Step(1, 3, "FROM base:1"),
        Step(2, 3, "COPY a /a", True),
        Step(3, 3, "RUN make"),
    ]
    assert progress.failure.step == "step 3/3: RUN make"
    assert progress.failure.exit_code == 7
    assert progress.failure.lines == ("no rule", "last words")
    assert "\x1b" not in log


def test_classic_success_and_our_labels():
    progress, steps, _ = classic([
        {"stream": "Step 1/2 : FROM base:1"}, {"stream": "\n"}, {"stream": " ---> 1\n"},
        {"stream": "Step 2/2 : LABEL io.gputasks.digest=abc"}, {"stream": " ---> Running in 2\n"},
        {"aux": {"ID": "sha256:9"}}, {"stream": "Successfully built 9\n"},
    ])  # fmt: skip
    assert steps == [Step(1, 2, "FROM base:1")]
    assert progress.failure is None
    assert progress.image_id == "sha256:9"


def test_classic_error_without_a_step():
    progress, _, _ = classic([{"error": "dockerfile parse error line 3"}])
    assert (progress.failure.step, progress.failure.exit_code) == ("", None)
    assert progress.failure.message == "dockerfile parse error line 3"


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


BUILDX = [
    {"vertexes": [{"digest": "sha256:0", "name": "[internal] load build definition from Dockerfile", "started": "t"}]},
    {"vertexes": [{"digest": "sha256:1", "name": "[1/3] FROM docker.io/library/base:1", "started": "t", "completed": "t", "cached": True}]},
    {"vertexes": [{"digest": "sha256:2", "name": "[stage-1 2/3] COPY a /a"}]},
    {"vertexes": [{"digest": "sha256:2", "name": "[stage-1 2/3] COPY a /a", "started": "t"}]},
    {"vertexes": [{"digest": "sha256:2", "name": "[stage-1 2/3] COPY a /a", "started": "t"}]},
    {"vertexes": [{"digest": "sha256:3", "name": "[stage-1 3/3] RUN make", "started": "t"}]},
    {"logs": [{"vertex": "sha256:3", "stream": 2, "data": b64("no ru")}, {"vertex": "sha256:3", "stream": 2, "data": b64("le \u00fc\nla")}]},
    {"logs": [{"vertex": "sha256:3", "stream": 2, "data": b64("st words")}]},
    {"vertexes": [{"digest": "sha256:3", "started": "t", "completed": "t", "error": 'process "/bin/sh -c make" did not complete successfully: exit code: 7'}]},
]  # fmt: skip
TEXT = "Dockerfile:3\n--------------------\n   3 | >>> RUN make\n--------------------\nERROR: failed to solve: process did not complete successfully: exit code: 7\n"


@pytest.mark.parametrize("indent", [None, 2], ids=["0.29 one a line", "0.13 pretty"])
@pytest.mark.parametrize("piece", [1, 7, 4096])
def test_rawjson_in_pieces(indent, piece):
    data = (
        "".join(json.dumps(e, indent=indent, ensure_ascii=False) + "\n" for e in BUILDX) + TEXT
    ).encode()
    steps, log = [], []
    progress = RawJson(steps.append, log.append)
    for at in range(0, len(data), piece):
        progress.feed(data[at : at + piece])
    progress.feed(b"", final=True)
    assert steps == [
        Step(1, 3, "FROM docker.io/library/base:1", True), Step(2, 3, "COPY a /a"), Step(3, 3, "RUN make"),
    ]  # fmt: skip
    assert progress.failure.step == "[stage-1 3/3] RUN make"
    assert progress.failure.exit_code == 7
    assert progress.failure.lines == ("no rule ü", "last words")
    assert progress.text[-1].startswith("ERROR: failed to solve")


def test_rawjson_that_is_none():
    steps, log = [], []
    progress = RawJson(steps.append, log.append)
    progress.feed(b"ERROR: Cannot connect to the Docker daemon\n{ not json", final=True)
    assert progress.text == ["ERROR: Cannot connect to the Docker daemon", "{ not json"]
    assert steps == []
