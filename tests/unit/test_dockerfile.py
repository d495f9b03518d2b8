"""What a Dockerfile says about files, parents and builders; what a described image becomes."""

from __future__ import annotations

import pytest

import gputasks as gt
from gputasks.errors import ConfigError
from gputasks.images import dockerfile, recipe, requirements


def read(text: str, **build_args: str) -> dockerfile.Dockerfile:
    return dockerfile.read(text, build_args)


@pytest.mark.parametrize(
    ("text", "sources"),
    [
        ("FROM a:1\nRUN true", ()),
        ("FROM a:1\nCOPY train.py src/*.py /app/", ("train.py", "src/*.py")),
        ('FROM a:1\nCOPY ["a b", "/app/"]', ("a b",)),
        ("FROM a:1\nADD https://x/y.tgz local.tgz /z/", ("local.tgz",)),
        ("FROM a:1\nCOPY --chown=1:1 a \\\n  # between\n  b \\\n  /app/", ("a", "b")),
        ("FROM a:1\nCOPY --from=a:2 /x /y", ()),
        ("FROM a:1\nCOPY $WHAT /y", None),
        ("FROM a:1\nRUN --mount=type=bind,source=pkg,target=/p pip install /p", ("pkg",)),
        ("FROM a:1\nRUN --mount=target=/p ls", (".",)),
        ("FROM a:1\nRUN --mount=type=cache,target=/root/.cache pip install x", ()),
        ("# syntax=docker/dockerfile:1\nFROM a:1\nCOPY a /a", None),
        ("FROM a:1\nCOPY <<EOF /x\nCOPY no /no\nEOF\nCOPY yes /yes", ("yes",)),
        ("FROM a:1\nRUN echo $((1<<X)) && true\nCOPY yes /yes", ("yes",)),
    ],
)
def test_files_that_are_taken(text, sources):
    assert read(text).sources == sources


@pytest.mark.parametrize(
    ("text", "bases"),
    [
        ("FROM a:1", ["a:1"]),
        ("FROM --platform=linux/amd64 a:1 AS build\nFROM build\nFROM b:2", ["a:1", "b:2"]),
        ("FROM a:1 as x\nFROM scratch\nCOPY --from=x /a /a\nCOPY --from=0 /a /a\nCOPY --from=c:3 /a /a", ["a:1", "c:3"]),
        ("ARG V=1\nARG B=a\nFROM $B:${V}", ["a:9"]),
        ("FROM ${B:-a:1}", ["a:1"]),
        ("FROM $UNKNOWN", ["$UNKNOWN"]),
    ],
)  # fmt: skip
def test_parents(text, bases):
    args = {"V": "9"} if "ARG V" in text else {}
    assert [b.ref for b in read(text, **args).bases] == bases


def test_what_a_builder_must_have():
    text = (
        "FROM a:1\nRUN <<EOF\ntrue\nEOF\nRUN --mount=type=secret,id=x true\nCOPY --chmod=755 a /a\n"
    )
    assert read(text).needs == {"heredocs": 2, "RUN --mount": 5, "COPY --chmod": 6}
    assert read("FROM a:1\nCOPY --chown=1 --from=x a /a").needs == {}


def test_escape_directive():
    assert read("# escape=`\nFROM a:1\nCOPY a `\n b /c/").sources == ("a", "b")


# -- requirements ----------------------------------------------------------------------------------


def test_comments_order_and_spaces_do_not_count(tmp_path):
    one = tmp_path / "one.txt"
    one.write_text("# numbers\nnumpy==2.0  # why\n\ntorch ==2.13.0\n")
    two = tmp_path / "two.txt"
    two.write_text("torch   ==2.13.0\nnumpy==2.0\n")
    assert requirements.read(str(one)) == requirements.read(str(two))
    assert requirements.read(str(one)) == requirements.read(["torch ==2.13.0", "numpy==2.0"])


def test_files_inside_files(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "main.txt").write_text(
        "-r sub/more.txt\n-c limits.txt\n--pre\na==1 \\\n  --hash=sha256:1\n"
    )
    (tmp_path / "sub/more.txt").write_text("b\n")
    (tmp_path / "limits.txt").write_text("c<3\n")
    found = requirements.read(str(tmp_path / "main.txt"))
    assert found == (("--pre",), ("a==1 --hash=sha256:1", "b"), ("c<3",))


@pytest.mark.parametrize("line", ["-e .", ".", "./pkg", "/abs/pkg", "file:///x"])
def test_paths_of_this_machine_are_refused(line, tmp_path):
    (tmp_path / "r.txt").write_text(f"numpy\n{line}\n")
    with pytest.raises(ConfigError, match="path of this machine") as caught:
        requirements.read(str(tmp_path / "r.txt"))
    assert caught.value.place.endswith("r.txt:2")


def test_frameworks_have_a_layer_of_their_own():
    found = requirements.read(["numpy", "Torch==2.13", "torch-geometric", "torchvision"])
    assert found.heavy == ("Torch==2.13", "torchvision")
    assert requirements.read(["torch==2 --hash=sha256:1"]).heavy == ()


# -- the recipe ------------------------------------------------------------------------------------


def made(**keys) -> recipe.Recipe:
    image = gt.Image("x", parent_image="python:3.12-slim", **keys)
    return recipe.recipe(image, "python:3.12-slim", requirements.read(image.requirements))


def test_what_changes_seldom_comes_first():
    text = made(
        apt_packages=["git", "curl"], requirements=["numpy", "torch==2.13"], environment={"A": 'b "$c"'},
        run=["echo 1", "a\nb"], copy={"src": "/app/src", ".": "/all"}, workdir="/app", user="me",
    ).text  # fmt: skip
    words = [line.split()[0] for line in text.splitlines()]
    assert words == [
        "FROM",
        "RUN",
        "RUN",
        "COPY",
        "RUN",
        "COPY",
        "RUN",
        "ENV",
        "WORKDIR",
        "RUN",
        "RUN",
        "COPY",
        "COPY",
        "USER",
    ]
    assert "curl git" in text
    assert r'ENV A="b \"\$c\""' in text
    assert 'COPY --chown=me ["files/src", "/app/src"]' in text
    assert 'COPY --chown=me ["files", "/all"]' in text
    assert 'RUN ["/bin/sh", "-ec", "a\\nb"]' in text
    assert text.index("frameworks.txt") < text.index("requirements.txt")


def test_installers_and_their_options():
    pip = made(
        requirements=["a"],
        python_package_installer="pip",
        index_urls=["https://i/simple", "https://j/simple"],
    )
    assert (
        "RUN python3 -m pip install --no-cache-dir --index-url https://i/simple --extra-index-url https://j/simple -r"
        in pip.text
    )
    uv = made(
        requirements=["a"],
        python_package_installer_args={"system": None, "index-strategy": "first index"},
    )
    assert "uv pip install --no-cache --system --index-strategy='first index' -r" in uv.text
    assert uv.files == {"gputasks/requirements.txt": b"a\n"}


def test_secrets_are_mounted_and_never_written():
    text = made(requirements=["a"], secrets={"pip.conf": "~/pip.conf"}, run=["true"]).text
    assert (
        "RUN --mount=type=secret,id=pip.conf PIP_CONFIG_FILE=/run/secrets/pip.conf uv pip install"
        in text
    )
    assert "RUN --mount=type=secret,id=pip.conf true" in text
    assert "~/pip.conf" not in text


def test_nothing_asked_is_the_parent_alone():
    assert made().text == "FROM python:3.12-slim\n"
