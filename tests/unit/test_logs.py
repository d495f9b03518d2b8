"""The end of a log as a person would have seen it."""

from __future__ import annotations

import io

import pytest
from tqdm import tqdm

from gputasks.launch.logs import last_lines


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", []),
        ("a\n\nb", ["a", "b"]),
        ("a\r\nb\r\n", ["a", "b"]),
        ("\r1%\r50%\r100%\nend\n", ["100%", "end"]),
        ("\r1%\r50%", ["50%"]),
        ("kept\r     \r\nb", ["kept", "b"]),
        ("\x1b[31mred\x1b[0m \x1b]0;title\x07x", ["red x"]),
        ("outer 1\n\rinner 1\x1b[A\router 2\n\rinner 2\n", ["outer 2", "inner 2"]),
        ("\x1b[99Aup", ["up"]),
        ("x\x1b", ["x\x1b"]),
    ],
)
def test_lines_in_their_last_state(text, lines):
    assert last_lines(text) == lines


def test_nested_bars_of_tqdm_are_two_lines():
    out = io.StringIO()
    for _ in tqdm(range(3), desc="outer", file=out, mininterval=0, ascii=True):
        for _ in tqdm(range(5), desc="inner", file=out, mininterval=0, leave=False):
            pass
    print("done", file=out)
    lines = last_lines(out.getvalue())
    assert len([line for line in lines if "outer" in line]) == 1, lines
    assert len(lines) <= 5
    assert "3/3" in lines[0]
    assert lines[-1].endswith("done")
