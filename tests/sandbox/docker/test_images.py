"""Images are made of what was named and nothing else, and one that targets cannot run in is refused with a reason.

With a real engine; the images are made of this machine's own files, and what is fetched is served by the test.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sandbox.docker import image_check, images
from sandbox.docker.provider import DockerSandbox
from sandbox.errors import DiskFull, ImageBuildFailed, ImageUnusable, RatchetError
from tests.files import write_files
from tests.local_image import PACKAGES, TORCH, Images, package
from tests.sandbox.docker.conftest import Serve, package_index, registry

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from tests.sandbox.conftest import Run


@pytest.fixture(scope="session")
def build(local_images: Images) -> Callable[..., str]:
    """An image of a kind, the cpu's, with nothing that a network is needed for but what is given."""

    def make(base: str, kind: images.Kind = "cpu", args: Mapping[str, str] | None = None, **given: Any) -> str:
        return images.build(kind, local_images.engine, base=base, args={"COMPILER": "no", **(args or {})}, **given)

    return make


@pytest.fixture(scope="session")
def cpu_image(local_images: Images, build: Callable[..., str]) -> str:
    return build(local_images.with_torch, tag=local_images.name("cpu"))


@pytest.fixture
def build_for(local_images: Images, cpu_image: str, serve: Serve) -> Callable[..., str]:
    """An image for a target, on that of the cpu, with one package that can be fetched."""
    if "bridge" in local_images.engine.networks():
        pytest.skip("builds have a network of their own here, from which a server of the test is not seen")

    def make(target: Path, index: dict[str, bytes], **given: Any) -> str:
        args = {"PIP_INDEX_URL": f"http://{serve(index)[0]}/simple"}
        return images.build_for(target, local_images.engine, base=cpu_image, args=args, network=True, **given)

    return make


def fails(kind: type[RatchetError], call: Callable[..., object], *given: Any, **named: Any) -> str:
    """Its message and its hint."""
    with pytest.raises(kind) as caught:
        call(*given, **named)
    assert caught.value.hint
    return f"{caught.value.message}\n{caught.value.hint}"


def refused_by_all(image: str, local_images: Images, folder: Path) -> list[str]:
    """What is said of an image where it is looked into, and where a run would use it."""
    sandbox = DockerSandbox("python3", folder / "scratch", owned=(folder,), image=image)
    return [
        fails(ImageUnusable, images.inspect, image, local_images.engine),
        fails(ImageUnusable, sandbox.promises),
    ]


def test_an_image_is_made_without_a_network_and_says_what_it_holds(cpu_image: str, local_images: Images) -> None:
    found = images.inspect(cpu_image, local_images.engine)
    python, executable = sys.version.split()[0], "/usr/local/bin/python3"
    told = {"python": python, "executable": executable, "torch": TORCH, "triton": None, "problem": ""}
    assert found.model_dump() == told
    (listed,) = (image for image in images.list_images(local_images.engine) if image.name == cpu_image)
    assert (listed.kind, listed.torch, listed.triton, listed.python) == ("cpu", TORCH, "", found.python)
    labels = local_images.labels(cpu_image)
    assert labels["ratchet.image"] == "cpu"
    assert labels["org.opencontainers.image.base.name"] == local_images.with_torch


@pytest.mark.parametrize("kind", ["rocm", "cuda"])
def test_the_images_for_gpus_are_made_on_any_base(
    kind: images.Kind, local_images: Images, build: Callable[..., str]
) -> None:
    config = local_images.config(build(local_images.with_torch, kind, tag=local_images.name(kind)))
    variables = dict(each.split("=", 1) for each in config["Env"])
    assert {value for name, value in variables.items() if name.startswith("TORCHINDUCTOR_")} == {"0"}
    assert (config["User"], config["Labels"]["ratchet.image"]) == ("65534:65534", kind)


def test_a_guest_runs_with_the_images_own_python(
    cpu_image: str, guests_of: Callable[..., Run], open_folder: Path
) -> None:
    sandbox = DockerSandbox("python3", open_folder / "scratch", owned=(open_folder,), image=cpu_image)
    assert sandbox.promises().contained
    process = guests_of(sandbox, "python3")(
        "import os, sys, torch\n"
        "channel.send({'python': sys.executable, 'torch': torch.__version__,"
        f" 'ours': os.path.exists({sys.executable!r}) or os.path.exists('/usr/bin/python3')}})"
    )
    told = process.channel.receive(30.0)
    assert told == {"python": "/usr/local/bin/python3", "torch": TORCH, "ours": False}


def test_the_python_that_the_images_path_leads_to_is_used_whatever_path_a_command_is_given(
    local_images: Images, guests_of: Callable[..., Run], open_folder: Path
) -> None:
    environment = {
        "opt/venv/bin/python3": Path(sys.executable).resolve().read_bytes(),
        "opt/venv/pyvenv.cfg": b"home = /usr/local/bin\n",
        # every distribution has some of what the look from inside must not see of this machine
        **dict.fromkeys(("etc/shadow", "etc/ssh/ssh_config", "run/docker.sock", "root/.ssh/config"), b"nobody's\n"),
    }
    image = local_images.of_files("venv", environment, "ENV PATH=/opt/venv/bin:/usr/bin:/bin", 'ENTRYPOINT ["/no"]')
    sandbox = DockerSandbox("python3", open_folder / "scratch", owned=(open_folder,), image=image)
    process = guests_of(sandbox, "python3")(
        "import sys; channel.send({'prefix': sys.prefix})", env={"PATH": "/usr/local/bin:/usr/bin:/bin"}
    )
    assert process.channel.receive(30.0) == {"prefix": "/opt/venv"}


def test_an_image_that_cannot_be_used_is_refused_with_the_reason(
    local_images: Images, build: Callable[..., str], open_folder: Path
) -> None:
    other = local_images.of_another_machine()
    for image, said in (
        ("ratchet-test/nothing:1", "has no image ratchet-test/nothing:1"),
        (other, "wrong architecture"),
        (local_images.of_files("shell", {}, python=False), "has no python3"),
        (local_images.of_files("volume", {}, "VOLUME /data"), "volumes (/data)"),
    ):
        for told in refused_by_all(image, local_images, open_folder):
            assert said in told
    assert "wrong architecture" in fails(ImageUnusable, build, other)


def test_an_image_without_a_pytorch_that_will_do_is_refused_whatever_its_labels_say(local_images: Images) -> None:
    lying = local_images.of_files("lying", {}, 'LABEL ratchet.image="cpu" ratchet.torch="9.9"')
    (listed,) = (image for image in images.list_images(local_images.engine) if image.name == lying)
    assert listed.torch == "9.9"
    old = local_images.of_files("old", package("torch", "2.8.0"))
    init = b"raise OSError('libamdhip64.so: cannot open\\x1b[31m')\n"
    broken = local_images.of_files("broken", {f"{PACKAGES}/torch/__init__.py": init})
    for image, said in (
        (lying, "has no PyTorch"),
        (old, "PyTorch 2.8.0, which is too old: a run needs 2.9"),
        (broken, "says of torch: OSError: libamdhip64.so: cannot open"),
    ):
        told = fails(ImageUnusable, images.inspect, image, local_images.engine)
        assert said in told and "\x1b" not in told
    assert images.inspect(lying, local_images.engine, need_torch=False).torch is None


@pytest.mark.parametrize(
    ("does", "said"), [("while :; do echo flood; done", "prints without end"), ("while :; do :; done", "not answer")]
)
def test_an_image_that_does_not_answer_is_ended(
    does: str, said: str, local_images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_check, "_TIMEOUT_S", 3.0)
    script = {"usr/local/bin/python3": f"#!/bin/sh\n{does}\n".encode()}
    image = local_images.of_files("mute", script, python=False)
    assert said in fails(ImageUnusable, images.inspect, image, local_images.engine)
    assert local_images.containers_of(image) == []


@pytest.mark.parametrize(
    ("does", "kind", "said"),
    [
        (
            "echo No module named pip\nexit 1",
            ImageBuildFailed,
            ["it failed at RUN set -e", "No module named pip", "status 1"],
        ),
        ("echo Temporary failure resolving somewhere\nexit 100", ImageBuildFailed, ["--yes allows it"]),
        ("cat /bin/sh > /dev/full", DiskFull, ["goes on from there"]),
    ],
    ids=["with its last words", "for want of a network", "for want of space"],
)
def test_a_step_that_fails_is_told(
    does: str, kind: type[RatchetError], said: list[str], local_images: Images, build: Callable[..., str]
) -> None:
    """The base's python3 says what a program of the step would."""
    script = {"usr/local/bin/python3": f"#!/bin/sh\n{does}\n".encode()}
    base, lines = local_images.of_files("failing", script, python=False), list[str]()
    told = fails(kind, build, base, args={"TORCH": "2.13.0"}, say=lines.append)
    assert all(words in told for words in said) and len(told) < 4000
    assert any(line.startswith("Step ") for line in lines)


@pytest.mark.parametrize("given", [{"UNHEARD": "of"}, {"BASE": "other"}, {"TORCH_INDEX": "https://me:secret@there/"}])
def test_arguments_that_cannot_be_taken_are_refused(given: dict[str, str], build: Callable[..., str]) -> None:
    assert "secret" not in fails(ImageBuildFailed, build, None, args=given)


def test_nothing_is_fetched_unless_the_network_is_given(
    local_images: Images, build: Callable[..., str], serve: Serve
) -> None:
    address, asked = serve(registry("base", local_images.layer()))
    base, name, engine = f"{address}/base:1", local_images.name("fetched"), local_images.engine
    assert "takes a network" in fails(ImageBuildFailed, build, base) and asked == []
    assert images.fetched("cpu", engine, base=base, args={"COMPILER": "no"}) == [f"the image {base}"]
    unknown = fails(ImageBuildFailed, build, f"{address}/no:1", network=True)
    assert f"cannot fetch the image {address}/no:1" in unknown

    local_images.made.append(base)
    lines: list[str] = []
    said = fails(ImageUnusable, build, base, tag=name, network=True, say=lines.append)
    assert asked and f"fetching {base}" in lines and images.fetched("cpu", engine, base=base) != []
    assert images._digest_of(engine, base)["org.opencontainers.image.base.digest"].startswith("sha256:")
    # it has a shell and nothing else: an image gets its name only when it can be used
    assert f"the image {name} has no python3" in said and not engine.has_image(name)


@pytest.mark.guard("image build")
def test_an_image_for_a_target_holds_what_it_requires_and_none_of_its_code(
    local_images: Images, build_for: Callable[..., str], tmp_path: Path
) -> None:
    canary = f"canary-{secrets.token_hex(16)}"
    target = write_files(
        tmp_path / "Target One",
        {
            "requirements.txt": "-r parts/more.txt\n-e .\ntorch==1.0\ntriton==1.0\n",
            "parts/more.txt": "-c ../bounds.txt\nneeded\n",
            "bounds.txt": "needed<2\n",
            "model.py": f"# {canary}\n",
            "setup.py": f"raise SystemExit({canary!r})\n",
            ".git/config": canary,
            "Dockerfile": f"FROM scratch\nLABEL canary={canary}\n",
            ".dockerignore": "*\n",
        },
    )
    lines: list[str] = []
    name = local_images.name("target")
    build_for(target, package_index("needed", "1.5", "torch>=2"), tag=name, say=lines.append)
    assert f"left out: torch==1.0: the base's {TORCH} stays" in lines
    assert "left out: triton==1.0: it belongs to another PyTorch" in lines
    files = dict(local_images.files(name))
    assert not [path for path, content in files.items() if canary.encode() in content]
    ours = ("packages.py", "requirements.txt", "constraints.txt", "base.txt", "base.json", "install.txt", "pins.txt")
    assert {path for path in files if path.startswith("opt/ratchet/")} == {f"opt/ratchet/{name}" for name in ours}
    assert f"{PACKAGES}/needed.py" in files
    assert files[f"{PACKAGES}/torch/version.py"] == package("torch", TORCH)[f"{PACKAGES}/torch/version.py"]
    assert local_images.labels(name)["ratchet.image"] == "target"
    assert images.inspect(name, local_images.engine).torch == TORCH


def test_a_package_that_writes_over_pytorch_ends_the_build(build_for: Callable[..., str], tmp_path: Path) -> None:
    greedy = package_index("greedy", "1.0", "torch", {"torch/version.py": "build = 'another'\n"})
    target = write_files(tmp_path / "target", {"requirements.txt": "greedy\n"})
    said = fails(ImageBuildFailed, build_for, target, greedy)
    assert "replaced what must stay: the files of torch are not those of the base" in said
