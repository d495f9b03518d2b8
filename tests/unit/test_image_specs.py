"""`gt.Image`: what may be said, what is refused, all of it at once."""

from __future__ import annotations

import pytest

import gputasks as gt
from gputasks.errors import ConfigError, ManyErrors
from gputasks.images import presets
from gputasks.images.names import content_tag, has_tag, is_among, pinned


def faults(*args, **keys) -> list[ConfigError]:
    with pytest.raises(ConfigError) as caught:
        gt.Image(*args, **keys)
    error = caught.value
    return list(error.faults) if isinstance(error, ManyErrors) else [error]


def test_a_parent_without_a_tag_is_refused():
    (fault,) = faults("x", parent_image="registry:5000/python")
    assert "neither tag nor digest" in fault.message
    assert "registry:5000/python:VERSION" in fault.hint
    for fine in ("python:3.12", "r:5000/p:1", "python@sha256:" + "0" * 64):
        assert gt.Image("x", parent_image=fine).parent_image == fine


@pytest.mark.parametrize("key", ["environment", "build_args"])
def test_what_looks_like_a_secret_is_refused(key):
    start = {"dockerfile": "D"} if key == "build_args" else {"parent_image": "a:1"}
    for name in ("HF_TOKEN", "db_password", "MY_SECRET", "AWS_ACCESS_KEY_ID"):
        (fault,) = faults("x", **start, **{key: {name: "v"}})
        assert "looks like a secret" in fault.message
        assert f'"env:{name}"' in fault.hint
    made = gt.Image("x", **start, **{key: {"KEYBOARD": "v"}}, allow_secret_names=["KEYBOARD"])
    assert getattr(made, key) == {"KEYBOARD": "v"}


def test_a_password_in_an_index_is_refused_and_not_shown():
    (fault,) = faults("x", parent_image="a:1", index_urls=["https://me:pw@host/simple"])
    assert "pw@" not in str(fault)


def test_a_dockerfile_says_itself_what_is_in_it():
    told = [
        f.message
        for f in faults("x", dockerfile="D", requirements=["a"], run=["b"], parent_image="a:1")
    ]
    assert len(told) == 3
    assert all("is for images without a Dockerfile" in m for m in told)
    (fault,) = faults("x", parent_image="a:1", build_args={"A": "1"})
    assert fault.message == "`build_args` of `Image` needs a `dockerfile`"


def test_a_prebuilt_image_takes_nothing_else():
    (fault,) = faults("x", parent_image="a:1", skip_build=True, apt_packages=["git"])
    assert "has no effect with `skip_build`" in fault.message
    assert len(faults("x", skip_build=True)) == 1


@pytest.mark.parametrize("name", ["Train", "a b", "-a", "a/b", "a:b", "."])
def test_names_that_no_engine_takes(name):
    assert "is no name for an image" in faults(name, parent_image="a:1")[0].message


@pytest.mark.parametrize(
    "keys",
    [
        {"apt_packages": ["git; rm"]}, {"apt_packages": "git"}, {"run": "x"}, {"copy": ["src"]}, {"workdir": "rel"},
        {"platform": "amd64"}, {"verify": "maybe"}, {"environment": {"A B": "x"}}, {"environment": {"A": 1}},
        {"labels": ["a"]}, {"cache": 1}, {"python_package_installer": "conda"}, {"user": "a b"},
        {"python_package_installer_args": ["--system"]}, {"index_urls": ["pypi"]}, {"secrets": {"a/b": "x"}},
        {"push": "r@sha256:1"}, {"build_options": {}}, {"image_tag": "x"},
    ],
    ids=str,
)  # fmt: skip
def test_values_of_another_form(keys):
    assert len(faults("x", parent_image="a:1", **keys)) == 1


def test_bare_flags():
    args = {"system": None, "no-deps": True, "retries": 3, "--pre": ""}
    made = gt.Image("x", parent_image="a:1", python_package_installer_args=args)
    assert made.python_package_installer_args == {
        "system": None,
        "no-deps": None,
        "retries": "3",
        "pre": None,
    }


def test_copies_with_options():
    made = gt.Image("x", parent_image="a:1", requirements=["a"], run=["b"])
    other = made.with_options(name="y", python_package_installer="pip", requirements=["c"])
    assert (other.name, other.run, other.requirements) == ("y", ("b",), ("c",))
    assert made.python_package_installer_args == {"system": None}
    assert other.python_package_installer_args == {}
    with pytest.raises(ConfigError, match="unknown key `rn`"):
        made.with_options(rn=["b"])


def test_presets_are_pinned():
    assert presets.ALL
    for ref in presets.ALL.values():
        assert has_tag(ref)
        assert not ref.endswith(":latest")
        gt.Image("x", parent_image=ref)


def test_references():
    assert content_tag("x", "0123456789abcdef0") == "gputasks/x:0123456789abcdef"
    assert pinned("a@sha256:1") == "sha256:1"
    assert not pinned("a:1")
    assert not has_tag("host:5000/a")
    assert is_among("gputasks/x:latest", ["localhost/gputasks/x:latest"])
    assert not is_among("gputasks/x:latest", None)
