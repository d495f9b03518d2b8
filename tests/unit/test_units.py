"""Memory and durations: one table, nothing guessed."""

from __future__ import annotations

import contextlib
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputasks.units import format_bytes, format_duration, parse_duration, parse_memory


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("16GB", 16 * 10**9),
        ("16GiB", 16 * 2**30),
        ("1.5GB", 1_500_000_000),
        ("16gb", 16 * 10**9),
        ("16 GB", 16 * 10**9),
        ("512mIb", 512 * 2**20),
        ("0.1PB", 10**14),
        ("1KB", 1000),
        ("1KiB", 1024),
        ("100B", 100),
        ("0.5B", 1),
        ("0.0001KB", 1),
    ],
)
def test_memory_accepted(text: str, size: int) -> None:
    assert parse_memory(text) == size


@pytest.mark.parametrize("text", ["16G", "16g", "16Gi", "16 M", "16", "1.5T"])
def test_a_bare_unit_is_refused_with_both_spellings(text: str) -> None:
    with pytest.raises(ValueError, match=r"write `[\d.]+[KMGTP]B` .* or `[\d.]+[KMGTP]iB`"):
        parse_memory(text)


@pytest.mark.parametrize(
    "text",
    ["0GB", "0.0MB", "\uff11\uff16GB", "1e3MB", "-1GB", "+1GB", ".5GB", "1.GB", "1.2.3GB", "", " ", "GB", "16iB",
     "16  GB", " 16GB", "16GB ", "16G B", "16XB", "16GBB", "1_000MB", "16ΓB", "inf", "nan", "9" * 5000 + "GB",
     "10000000000PB", "16\nGB"],
)  # fmt: skip
def test_memory_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_memory(text)


@pytest.mark.parametrize("value", [16, 1.5, None, True, b"16GB", ["16GB"]])
def test_memory_of_another_type(value: object) -> None:
    with pytest.raises(ValueError, match="no memory size"):
        parse_memory(value)  # type: ignore[arg-type]


UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


@given(st.integers(1, 10**6), st.integers(0, 999), st.sampled_from(sorted(UNITS)))
def test_memory_is_exact_and_rounds_up(whole: int, thousandths: int, unit: str) -> None:
    exact = Fraction(whole * 1000 + thousandths, 1000) * UNITS[unit]
    size = parse_memory(f"{whole}.{thousandths:03d}{unit}")
    assert exact <= size < exact + 1


@given(st.text(max_size=12))
def test_any_text_is_a_size_or_a_value_error(text: str) -> None:
    for parse in (parse_memory, parse_duration):
        with contextlib.suppress(ValueError):
            assert text == "off" or parse(text) > 0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("2h", 7200), ("30m", 1800), ("90s", 90), ("1h30m", 5400), ("1d2h3m4s", 93784), ("0.5s", 0.5),
     ("1.5h", 5400), (3, 3), (0.25, 0.25), ("off", None)],
)  # fmt: skip
def test_duration_accepted(text: str, seconds: float | None) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "2", "h", "2x", "2h2h", "30m1h", "1h 30m", "-2h", "OFF", "0s", "0", "1e3s", "\uff12h", ".5s", "1.s", "2h30",
     "99999999d", "9" * 400 + "s", 0, -1, 10**400, float("nan"), float("inf"), True, None, [2], b"2h"],
)  # fmt: skip
def test_duration_refused(text: object) -> None:
    with pytest.raises(ValueError) as caught:
        parse_duration(text)  # type: ignore[arg-type]
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (42.4, "42s"), (59.6, "1m00s"), (192, "3m12s"), (3840, "1h04m"), (-1, "0s"),
     (float("inf"), "?"), (float("nan"), "?")],
)  # fmt: skip
def test_duration_shown(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.integers(1, 86400 * 30))
def test_a_shown_duration_reads_back(seconds: int) -> None:
    back = parse_duration(format_duration(seconds))
    assert back is not None
    assert abs(back - seconds) < 60


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 KB"), (999_999, "1.0 MB"), (1_500_000_000, "1.5 GB"),
     (10**15, "1.0 PB"), (10**19, "10000.0 PB")],
)  # fmt: skip
def test_bytes_shown(size: int, text: str) -> None:
    assert format_bytes(size) == text
