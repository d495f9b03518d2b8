"""Images on a real engine: built when something changed or they are gone, and not otherwise."""

from __future__ import annotations

import json
import os
import signal
import subprocess

import docker_images
import pytest
from conftest import eventually

pytestmark = pytest.mark.docker

DODO = """
def task_image():
    return gt.build(gt.Image("{name}", dockerfile="images/x.Dockerfile", verify="none"{more}))
def task_after():
    return {{"actions": ["echo ran >> after"], "file_dep": [".gputasks/images/{name}.digest"], "targets": ["after"]}}
"""
DOCKERFILE = f"FROM {docker_images.TINY}\nCOPY train.py src /app/\nRUN echo hello > /hello\n"


@pytest.fixture(autouse=True)
def classic(project):
    """What every engine has; tests of buildx say so."""
    project.env["GPUTASKS_BUILDER"] = "classic"


@pytest.fixture
def buildx(project):
    """buildx, where the docker command has it."""
    if subprocess.run(["docker", "buildx", "version"], capture_output=True).returncode != 0:
        pytest.skip("the docker command has no buildx: `.ci/docker start` fetches it")
    project.env["GPUTASKS_BUILDER"] = "buildx"


@pytest.fixture
def built(project, image_name):
    """A project whose image is built."""
    project.name = image_name
    project.dodo(DODO.format(name=image_name, more=""))
    project.write("images/x.Dockerfile", DOCKERFILE)
    project.write("train.py", "print(1)\n")
    project.write("src/a.py", "a = 1\n")
    project.write("data/large.bin", "not taken")
    result = project.doit("after")
    assert result.returncode == 0, result.stderr
    assert "runs: never built here" in result.stderr
    assert "RUN echo hello > /hello" in result.stderr
    return project


def docker(*argv: str) -> str:
    return subprocess.run(["docker", *argv], capture_output=True, text=True, check=True).stdout


def receipt(project) -> dict:
    return json.loads((project.root / f".gputasks/images/{project.name}.json").read_text())


def test_what_is_up_to_date_stays_so(built):
    ref = receipt(built)["ref"]
    assert (
        docker("run", "--rm", ref, "cat", "/app/train.py", "/app/a.py", "/hello")
        == "print(1)\na = 1\nhello\n"
    )
    assert built.doit("after").stderr.count("up to date") == 2
    for path in ("train.py", "src/a.py"):
        os.utime(built.root / path, (1, 1))
        os.chown(built.root / path, 1234, 1234) if os.geteuid() == 0 else None
    built.write("data/large.bin", "other")
    built.write("src/__pycache__/a.pyc", "x")
    assert built.doit("after").stderr.count("up to date") == 2
    assert built.gputasks("why", "image").stdout == "image: up to date\n"


@pytest.mark.parametrize(
    ("path", "text", "why"),
    [
        ("train.py", "print(2)\n", "train.py changed"),
        ("src/new.py", "new = 1\n", "src/new.py added"),
        (
            "images/x.Dockerfile",
            DOCKERFILE.replace("hello >", "bye >"),
            "images/x.Dockerfile changed",
        ),
        (".dockerignore", "src/a.py\n", "src/a.py removed"),
    ],
)
def test_what_an_image_is_made_of_makes_it_again(built, path, text, why):
    first = receipt(built)
    built.write(path, text)
    assert built.gputasks("why", "image").stdout == f"image: would run\n  {why}\n"
    result = built.doit("after")
    assert result.returncode == 0, result.stderr
    assert f"runs: {why}" in result.stderr
    assert receipt(built)["ref"] != first["ref"]
    assert (built.root / "after").read_text() == "ran\nran\n"
    assert built.doit("after").stderr.count("up to date") == 2


def test_a_comment_builds_and_what_follows_does_not_run(built):
    built.write("images/x.Dockerfile", "# a comment\n" + DOCKERFILE)
    result = built.doit("after")
    assert "image  succeeded" in result.stderr
    assert "-- after (up to date)" in result.stderr
    assert "(cached)" in result.stderr


def test_back_to_what_was_needs_no_build(built):
    first = receipt(built)["ref"]
    built.write("train.py", "print(2)\n")
    assert built.doit("image").returncode == 0
    built.write("train.py", "print(1)\n")
    result = built.doit("image")
    assert "nothing to build" in result.stderr
    assert receipt(built)["ref"] == first


def test_a_pruned_image_is_built_again(built):
    docker("rmi", "-f", receipt(built)["ref"], f"gputasks/{built.name}:latest")
    result = built.doit("after")
    assert "image missing" in result.stderr
    assert "image  succeeded" in result.stderr
    docker("image", "inspect", receipt(built)["ref"])


def test_a_stolen_tag_comes_back_without_a_build(built):
    friendly = f"gputasks/{built.name}:latest"
    docker("tag", docker_images.TINY, friendly)
    result = built.doit("after")
    assert f"tag {friendly} moved or lost" in result.stderr
    assert "nothing to build" in result.stderr
    assert "-- after (up to date)" in result.stderr
    assert docker("inspect", "-f", "{{.Id}}", friendly) == docker(
        "inspect", "-f", "{{.Id}}", receipt(built)["ref"]
    )


def test_another_parent_under_the_same_name(project, image_name):
    parent = f"gputasks-test/{image_name}:1"
    project.dodo(f"""
        def task_image():
            return gt.build(gt.Image("{image_name}", parent_image="{parent}", run=["true"], verify="none"))
    """)
    try:
        docker_images.import_image(parent, {"etc/version": b"1"})
        assert project.doit().returncode == 0
        assert "up to date" in project.doit().stderr
        docker_images.import_image(parent, {"etc/version": b"2"})
        result = project.doit()
        assert f"runs: parent image {parent} changed" in result.stderr
        assert result.returncode == 0, result.stderr
    finally:
        subprocess.run(["docker", "rmi", "-f", parent], capture_output=True)


def test_forced_and_forgotten_are_built(built):
    assert "3/5 RUN" in built.doit("-a", "image").stderr
    built.doit("forget", "image")
    result = built.doit("image")
    assert "doit has no record" in result.stderr
    assert result.returncode == 0


def test_clean_removes_tags_and_receipt(built):
    ref = receipt(built)["ref"]
    assert ref in built.doit("clean", "image").stdout
    assert subprocess.run(["docker", "image", "inspect", ref], capture_output=True).returncode != 0
    assert not (built.root / f".gputasks/images/{built.name}.json").exists()


def test_no_engine_contradicts_nothing(built):
    result = built.doit("after", DOCKER_HOST="unix:///nope.sock")
    assert result.returncode == 0
    lines = [line for line in result.stderr.splitlines() if "nope.sock" in line]
    assert len(lines) == 1
    assert "taken as built" in lines[0]
    assert "-- image (up to date)" in result.stderr


def test_no_engine_fails_the_build_in_one_line_and_nothing_else(project):
    project.dodo("""
        def task_image():
            return gt.build(gt.Image("x", parent_image="a:1"))
        def task_other():
            return gt.command(["true"], name=None) if False else {"actions": ["touch other"]}
    """)
    result = project.doit("-c", DOCKER_HOST="unix:///nope.sock")
    assert result.returncode == 2
    assert (
        "error: no container engine at `unix:///nope.sock` (from `DOCKER_HOST`): there is no"
        in result.stderr
    )
    assert "Traceback" not in result.stderr
    assert (project.root / "other").exists()
    assert project.doit("list", DOCKER_HOST="unix:///nope.sock").returncode == 0
    assert project.gputasks("status", DOCKER_HOST="unix:///nope.sock").returncode == 0


def test_a_failing_step(built):
    built.write("images/x.Dockerfile", DOCKERFILE + "RUN echo first; echo last; exit 7\n")
    result = built.doit("image")
    assert result.returncode == 1
    error = result.stderr[result.stderr.index("error: ") :]
    assert error.startswith(f"error: `image` failed: image `{built.name}` could not be built\n")
    assert "step 4/6: RUN echo first; echo last; exit 7" in error
    assert "exited with code 7" in error
    assert "last lines:\n    first\n    last\n" in error
    assert built.gputasks("logs", "image").stdout.count("last") >= 1
    assert "image" in built.gputasks("status").stdout


def test_what_the_builder_cannot_do_is_said_before(built):
    built.write("images/x.Dockerfile", DOCKERFILE + "RUN --mount=type=secret,id=x true\n")
    built.dodo(DODO.format(name=built.name, more=', secrets={"x": "train.py"}'))
    result = built.doit("image")
    assert result.returncode == 2
    assert "the classic builder cannot build image" in result.stderr
    assert "it has no RUN --mount (images/x.Dockerfile:4)" in result.stderr
    assert "it has no secret mounts" in result.stderr
    assert "1/" not in result.stderr


def test_a_parent_that_cannot_be_had(project, image_name):
    project.dodo(f"""
        def task_image():
            return gt.build(gt.Image("{image_name}", parent_image="127.0.0.1:1/nobody/has:this"))
    """)
    result = project.doit()
    assert result.returncode == 2
    assert "parent image `127.0.0.1:1/nobody/has:this`" in result.stderr
    assert "hint: `docker pull" in result.stderr


def test_ctrl_c_ends_the_build(built):
    built.write("images/x.Dockerfile", DOCKERFILE + f"RUN echo {built.name}; sleep 300\n")
    process = built.start("image")
    eventually(lambda: "4/6 RUN echo" in built.output(process), 30)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    assert "Traceback" not in built.output(process)
    eventually(lambda: built.name not in docker("ps", "--no-trunc"), 20, what="the end of the step")


def test_an_edit_during_the_build_builds_again(built):
    built.write("images/x.Dockerfile", DOCKERFILE + f"RUN echo {built.name}; sleep 3\n")
    process = built.start("image")
    eventually(lambda: "4/6 RUN echo" in built.output(process), 30)
    built.write("train.py", "print(3)\n")
    assert process.wait(60) == 0
    assert "files changed while the image was built; building it again" in built.output(process)
    ref = receipt(built)["ref"]
    assert docker("run", "--rm", ref, "cat", "/app/train.py") == "print(3)\n"
    assert "up to date" in built.doit("image").stderr
    assert (
        docker("images", "-q", f"gputasks/{built.name}").count("\n") == 3
    )  # two builds, one twice


def test_described_in_toml(project, image_name):
    project.write("gputasks.toml", f"""
        [images.{image_name}]
        parent_image = "{docker_images.TINY}"
        environment = {{ MODE = "a b" }}
        run = ["echo $MODE > /mode"]
        copy = {{ "src" = "/app/src" }}
        workdir = "/app"
        verify = "none"
    """)  # fmt: skip
    project.dodo(f"""
        project = gt.load()
        base = project.images["{image_name}"]
        def task_base():
            return gt.build(base)
        def task_child():
            return gt.build(gt.Image("{image_name}-child", parent_image=base, run=["echo 2 > /two"], verify="none"))
    """)
    project.write("src/a.py", "a\n")
    result = project.doit("child")
    assert result.returncode == 0, result.stderr
    ref = f"gputasks/{image_name}-child:latest"
    assert docker("run", "--rm", ref, "cat", "/mode", "src/a.py", "/two") == "a b\na\n2\n"
    ours = (".gputasks", "__pycache__")
    left = sorted(p.name for p in project.root.iterdir() if p.name not in ours)
    assert left == ["dodo.py", "gputasks.toml", "src"]
    assert project.doit("child").stderr.count("up to date") == 2
    project.write("src/a.py", "b\n")
    assert f"runs: parent image gputasks/{image_name} changed" in project.doit("child").stderr


def test_no_heavy_import_when_nothing_is_built(built):
    import sys

    result = built.run(sys.executable, "-X", "importtime", "-m", "doit", "image")
    assert "up to date" in result.stderr
    for name in ("docker", "requests", "http.client", "tarfile"):
        assert f" {name}\n" not in result.stderr, name


def test_buildx_has_secrets_and_no_layer_has_them(buildx, project, image_name):
    project.name = image_name
    project.write("token.txt", "s3kr1t-token-file")
    project.write("images/x.Dockerfile", f"FROM {docker_images.TINY}\nCOPY train.py /app/\n"
        "RUN --mount=type=secret,id=f --mount=type=secret,id=v test -s /run/secrets/f -a -s /run/secrets/v\n"
        "RUN echo hello > /hello\n")  # fmt: skip
    project.write("train.py", "print(1)\n")
    project.write(".dockerignore", "token.txt\n")
    project.dodo(DODO.format(name=image_name, more=', secrets={"f": "token.txt", "v": "env:V"}'))
    result = project.doit("image", V="s3kr1t-variable")
    assert result.returncode == 0, result.stderr
    assert "4/4 RUN echo hello" in result.stderr
    assert receipt(project)["builder"] == "buildx"
    kept = docker("history", "--no-trunc", receipt(project)["ref"]) + docker(
        "inspect", receipt(project)["ref"]
    )
    assert "s3kr1t" not in kept
    for path in (project.root / ".gputasks").rglob("*"):
        assert not path.is_file() or b"s3kr1t" not in path.read_bytes(), path
    assert "up to date" in project.doit("image", V="another").stderr
    missing = project.doit("-a", "image")
    assert missing.returncode == 2
    assert "needs the variable `V`, which is not set" in missing.stderr


def test_buildx_builds_what_is_described_and_tells_what_fails(buildx, project, image_name):
    project.name = image_name
    project.write("src/a.py", "a\n")
    dodo = f"""
        def task_image():
            return gt.build(gt.Image("{image_name}", parent_image="{docker_images.TINY}", verify="none",
                copy={{{{"src": "/app"}}}}, run=["{{run}}"]))
    """
    project.dodo(dodo.format(run="echo 1 > /one"))
    result = project.doit()
    assert result.returncode == 0, result.stderr
    assert docker("run", "--rm", receipt(project)["ref"], "cat", "/app/a.py", "/one") == "a\n1\n"
    assert "up to date" in project.doit().stderr
    project.dodo(dodo.format(run="echo first; exit 7"))
    result = project.doit()
    assert result.returncode == 1
    assert "exited with code 7\n  last lines:\n    first\n" in result.stderr


def test_buildx_ends_with_ctrl_c(buildx, built):
    built.write("images/x.Dockerfile", DOCKERFILE + f"RUN echo {built.name}; sleep 300\n")
    process = built.start("image")
    eventually(lambda: "4/4 RUN echo" in built.output(process), 30)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    assert "Traceback" not in built.output(process)


@pytest.fixture
def python_base(engine):
    if engine.inspect_image(docker_images.BASE) is None:
        pytest.skip(f"no image {docker_images.BASE}: `.ci/run` makes it")
    return docker_images.BASE


FAKE_TORCH = "__version__ = '2.14.1+cu130'\ncuda = '13.0'\n"


def test_torch_and_cuda_of_an_image(project, image_name, python_base):
    project.name = image_name
    project.write("torch/__init__.py", "raise ImportError('nobody may import it')")
    project.write("torch/version.py", FAKE_TORCH)
    dodo = f"""
        def task_image():
            return gt.build(gt.Image("{image_name}", parent_image="{python_base}", verify="{{verify}}",
                copy={{{{"torch": "/usr/local/lib/python3.11/dist-packages/torch"}}}}))
    """
    project.dodo(dodo.format(verify="13.0"))
    result = project.doit()
    assert result.returncode == 0, result.stderr
    facts = receipt(project)["facts"]
    assert (facts["torch"], facts["cuda"]) == ("2.14.1+cu130", "13.0")
    assert facts["python"].startswith("3.11.")
    assert any(p.startswith("pip==") for p in facts["packages"])
    assert "torch 2.14.1+cu130, CUDA 13.0" in result.stderr
    project.write("torch/version.py", "__version__ = '2.14.1+cpu'\ncuda = None\n")
    result = project.doit()
    assert result.returncode == 1
    assert "has torch 2.14.1+cpu without CUDA" in result.stderr


def test_pruned_and_built_again_with_the_same_packages_is_the_same(
    project, image_name, python_base
):
    project.name = image_name
    project.dodo(f"""
        def task_image():
            return gt.build(gt.Image("{image_name}", parent_image="{python_base}", run=["cat /proc/uptime > /now"]))
    """)
    assert project.doit().returncode == 0
    first, digest = receipt(project), project.root / f".gputasks/images/{image_name}.digest"
    said = digest.read_text()
    docker_images.remove_images(image_name)
    assert "image missing" in project.doit().stderr
    assert receipt(project)["layers"] != first["layers"]
    assert digest.read_text() == said


def wheel(project, name: str) -> None:
    import zipfile

    folder = project.root.parent / "index" / name
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as file:
        file.writestr(f"{name}.py", "x = 1\n")
        info = f"{name}-1.0.dist-info"
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        file.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        file.writestr(f"{info}/RECORD", "")


@pytest.fixture
def index(project):
    import functools
    import http.server
    import threading

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    wheel(project, "aaaa")
    wheel(project, "bbbb")
    handler = functools.partial(Quiet, directory=str(project.root.parent / "index"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def test_requirements_by_pip(project, image_name, python_base, index):
    project.name = image_name
    project.write("requirements.txt", "aaaa==1.0\nbbbb\n")
    project.dodo(f"""
        def task_image():
            return gt.build(gt.Image("{image_name}", parent_image="{python_base}", requirements="requirements.txt",
                python_package_installer="pip", python_package_installer_args={{"break-system-packages": None}},
                index_urls=["{index}"], network="host"))
    """)
    result = project.doit()
    assert result.returncode == 0, result.stderr
    assert "aaaa==1.0" in receipt(project)["facts"]["packages"]
    project.write("requirements.txt", "# why\nbbbb\naaaa == 1.0  # because\n".replace(" == ", "=="))
    assert "up to date" in project.doit().stderr
    project.write("requirements.txt", "aaaa==1.0\n")
    assert "requirements: -bbbb" in project.gputasks("why", "image").stdout
    assert project.doit().returncode == 0
    assert "bbbb==1.0" not in receipt(project)["facts"]["packages"]
