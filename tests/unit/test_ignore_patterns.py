"""`.dockerignore` as moby reads it; the tables are those of moby's own tests and of research."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputasks.images.patterns import BadPatternError, Matcher, parse, read_lines


def left_out(lines: list[str], path: str) -> bool:
    return Matcher(parse(lines)).left_out(path)


@pytest.mark.parametrize(
    ("pattern", "path", "out"),
    [
        ("**", "file", True),
        ("**", "dir/file", True),
        ("**/", "dir/file", True),
        ("**/**", "dir/dir2/file", True),
        ("dir/**", "dir/file", True),
        ("dir/**", "dir/dir2/file", True),
        ("dir/**", "other/file", False),
        ("dir/**/", "dir/dir2/file", True),
        ("**/dir2/*", "dir/dir2/file", True),
        ("**/dir2/*", "dir/dir2/dir2/file", True),
        ("**/dir2/**", "dir/dir2/dir2/file", True),
        ("**file", "file", True),
        ("**file", "dir/file", True),
        ("**/file", "file", True),
        ("**/file", "dir/dir/file", True),
        ("**/file*", "dir/dir/file.txt", True),
        ("**/file*txt", "dir/dir/file.txt", True),
        ("**/file*.txt*", "dir/dir/file.txt", True),
        ("**/**/*.txt", "dir/dir/file.txt", True),
        ("**/**/*.txt2", "dir/dir/file.txt", False),
        ("**/*.txt", "file.txt", True),
        ("**/**/*.txt", "file.txt", True),
        ("a**/*.txt", "a/file.txt", True),
        ("a**/*.txt", "a/dir/file.txt", True),
        ("a/*.txt", "a/dir/file.txt", False),
        ("a/*.txt", "a/file.txt", True),
        ("a/*.txt**", "a/file.txt", True),
        ("a[b-d]e", "ae", False),
        ("a[b-d]e", "ace", True),
        ("a[b-d]e", "aae", False),
        ("a[^b-d]e", "aze", True),
        ("[^a]", "b", True),
        ("[^a]", "a", False),
        (".*", ".foo", True),
        (".*", "foo", False),
        ("abc.def", "abcdef", False),
        ("abc.def", "abc.def", True),
        ("abc.def", "abcZdef", False),
        ("abc?def", "abcZdef", True),
        ("abc?def", "abcdef", False),
        ("a\\\\", "a\\", True),
        ("**/foo/bar", "foo/bar", True),
        ("**/foo/bar", "dir/foo/bar", True),
        ("**/foo/bar", "dir/dir2/foo/bar", True),
        ("abc/**", "abc", False),
        ("abc/**", "abc/def", True),
        ("abc/**", "abc/def/ghi", True),
        ("**/.foo", ".foo", True),
        ("**/.foo", "bar.foo", False),
        ("./bar.*", "bar.tiff", True),
        ("a(b)c/def", "a(b)c/def", True),
        ("a(b)c/def", "a(b)c/xyz", False),
        ("a.|)$(}+{bc", "a.|)$(}+{bc", True),
        ("dist/proxy.py-2.4.0rc3.dev36+g08acad9-py3-none-any.whl", "dist/proxy.py-2.4.0rc3.dev36+g08acad9-py3-none-any.whl", True),
        ("A.TXT", "a.txt", False),  # never without regard to case
        ("\\!x", "!x", True),
        ("\\#x", "#x", True),
        ("\\[x\\]", "[x]", True),
        ("dir", "dir/file", True),  # what a pattern matches is out with all that is in it
        ("dir/*", "dir/sub/file", True),
        ("*", "dir/sub/file", True),
        ("/", "file", False),
    ],
)  # fmt: skip
def test_one_pattern(pattern, path, out):
    assert left_out([pattern], path) is out


@pytest.mark.parametrize(
    ("lines", "kept", "gone"),
    [
        (["*", "!keep"], ["keep"], ["other", "dir/keep"]),
        (["*", "!dir"], ["dir/a", "dir/b/c"], ["a"]),
        (["*", "!src/**/*.py"], ["src/a/b.py", "src/b.py"], ["src/a/b.txt", "b.py"]),
        (["data/**", "!data/**/keep.txt"], ["data/x/y/keep.txt"], ["data/x/y/other"]),
        (["docs", "!docs/README.md"], ["docs/README.md"], ["docs/other"]),
        (["*.md", "!README*.md", "README-secret.md"], ["README.md"], ["a.md", "README-secret.md"]),
        (["*.md", "README-secret.md", "!README*.md"], ["README-secret.md"], ["a.md"]),
        (["**/.*"], ["a/b"], ["a/.b", ".c", ".d/e"]),
        ([" spaced ", ""], [], ["spaced"]),
        (["!keep", "*"], [], ["keep"]),
    ],
)
def test_the_last_pattern_that_matches_decides(lines, kept, gone):
    assert [p for p in kept if left_out(lines, p)] == []
    assert [p for p in gone if not left_out(lines, p)] == []


@pytest.mark.parametrize(
    "pattern", ["[", "[^", "[^]", "[^bc", "a[", "[]a]", "[a-]", "\\", "a\\", "!"]
)
def test_what_go_refuses_is_refused(pattern):
    with pytest.raises(BadPatternError):
        parse([pattern])


def test_lines_of_a_file():
    data = (
        "\ufeff*.log\n# comment\n #name\n\n  spaced  \r\n/rooted\n! /back\n!\n./a//b/../c/\n"
    ).encode()
    assert read_lines(data) == ["*.log", "#name", "spaced", "rooted", "!back", "!", "a/c"]


NAMES = st.sampled_from(["a", "b", ".c", "d.py", "e e"])
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)
PARTS = st.sampled_from(["a", "b", ".c", "*", "*.py", "**", "?", "[ab]", "d.py", "e*"])
PATTERNS = st.builds(
    lambda back, parts: ("!" if back else "") + "/".join(parts),
    st.booleans(),
    st.lists(PARTS, min_size=1, max_size=3),
)


@given(st.lists(PATTERNS, max_size=5), PATHS)
def test_a_folder_that_is_pruned_holds_nothing_that_comes_back(lines, path):
    """The walk enters a folder that is left out only where `!` may bring something back."""
    matcher = Matcher(parse(lines))
    parts = path.split("/")
    seen: tuple[bool, ...] = ()
    for i in range(1, len(parts)):
        folder = "/".join(parts[:i])
        out, seen = matcher.ask(folder, seen)
        if out and not matcher.may_return(folder):
            assert matcher.left_out(path)
            return


@given(st.lists(PATTERNS.filter(lambda p: not p.startswith("!")), max_size=5), PATHS)
def test_without_exceptions_one_match_of_path_or_folder_suffices(lines, path):
    patterns = parse(lines)
    parts = path.split("/")
    above = ["/".join(parts[: i + 1]) for i in range(len(parts))]
    expected = any(p.matches(folder) for p in patterns for folder in above)
    assert Matcher(patterns).left_out(path) is expected


@given(PATHS)
def test_a_path_matches_itself(path):
    assert left_out([path], path)
    assert left_out([path], f"{path}/below")
    assert not left_out([f"{path}/below"], path)
