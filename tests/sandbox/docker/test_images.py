"""Images are made of what was named and nothing else, and one that targets cannot run in is refused with a reason.

With a real engine; the images are made of this machine's own files, and what is fetched is served by the test.
"""

from __future__ import annotations

import io
import json
import secrets
import subprocess
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sandbox.docker import image_check, images, progress
from sandbox.docker.provider import DockerSandbox
from sandbox.errors import DiskFull, ImageBuildFailed, ImageUnusable, RatchetError
from tests.files import write_files
from tests.local_image import PACKAGES, TORCH, Images, package

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from tests.sandbox.conftest import Run

OFFLINE = {"COMPILER": "no"}


@pytest.fixture(scope="session")
def cpu_image(local_images: Images) -> str:
    name = local_images.name("cpu")
    return images.build("cpu", local_images.engine, base=local_images.with_torch, tag=name, args=OFFLINE)


@pytest.fixture
def host_network(local_images: Images) -> None:
    if "bridge" in local_images.engine.networks():
        pytest.skip("builds have a network of their own here, from which a server of the test is not seen")


def fails(call: Callable[[], object], kind: type[RatchetError]) -> str:
    with pytest.raises(kind) as caught:
        call()
    assert caught.value.hint
    return caught.value.message


def test_an_image_is_made_without_a_network_and_says_what_it_holds(cpu_image: str, local_images: Images) -> None:
    found = images.inspect(cpu_image, local_images.engine)
    assert found == images.Contents(sys.version.split()[0], "/usr/local/bin/python3", TORCH, None)
    (listed,) = (image for image in images.list_images(local_images.engine) if image.name == cpu_image)
    assert (listed.kind, listed.torch, listed.triton, listed.python) == ("cpu", TORCH, "", found.python)
    labels = local_images.labels(cpu_image)
    assert labels["ratchet.image"] == "cpu"
    assert labels["org.opencontainers.image.base.name"] == local_images.with_torch


@pytest.mark.parametrize("kind", ["rocm", "cuda"])
def test_the_images_for_gpus_are_made_on_any_base(kind: images.Kind, local_images: Images) -> None:
    name = local_images.name(kind)
    images.build(kind, local_images.engine, base=local_images.with_torch, tag=name, args=OFFLINE)
    config = local_images.config(name)
    variables = dict(each.split("=", 1) for each in config["Env"])
    assert {value for name, value in variables.items() if name.startswith("TORCHINDUCTOR_")} == {"0"}
    assert config["User"] == "65534:65534"
    assert config["Labels"]["ratchet.image"] == kind


def test_bases_are_pinned() -> None:
    for kind in images.KINDS:
        name, _, tag = images.arguments_of(kind)["BASE"].partition(":")
        assert name and any(sign.isdigit() for sign in tag) and "latest" not in tag


def test_what_an_image_holds_is_asked_of_it_and_not_of_its_labels(local_images: Images) -> None:
    label = 'LABEL ratchet.image="cpu" ratchet.torch="9.9"'
    lying = local_images.of_files("lying", {}, label)
    (listed,) = (image for image in images.list_images(local_images.engine) if image.name == lying)
    assert listed.torch == "9.9"
    assert "has no PyTorch" in fails(lambda: images.inspect(lying, local_images.engine), ImageUnusable)


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
    }
    image = local_images.of_files("venv", environment, "ENV PATH=/opt/venv/bin:/usr/bin:/bin", 'ENTRYPOINT ["/no"]')
    sandbox = DockerSandbox("python3", open_folder / "scratch", owned=(open_folder,), image=image)
    process = guests_of(sandbox, "python3")(
        "import sys; channel.send({'prefix': sys.prefix})", env={"PATH": "/usr/local/bin:/usr/bin:/bin"}
    )
    assert process.channel.receive(30.0) == {"prefix": "/opt/venv"}


def test_files_of_an_image_are_not_taken_for_this_machines(local_images: Images, open_folder: Path) -> None:
    """Every distribution has some of what the look from inside must not see of this machine."""
    own = ("etc/shadow", "etc/ssh/ssh_config", "run/docker.sock", "var/run/docker.sock", "root/.ssh/config")
    image = local_images.of_files("distribution", dict.fromkeys(own, b"nobody's\n"))
    assert DockerSandbox("python3", open_folder / "scratch", owned=(open_folder,), image=image).promises().contained


def test_a_missing_image_is_refused(local_images: Images, open_folder: Path) -> None:
    sandbox = DockerSandbox("python3", open_folder / "scratch", image="ratchet-test/nothing:1")
    assert "has no image ratchet-test/nothing:1" in fails(sandbox.promises, ImageUnusable)


def test_an_image_for_another_processor_is_refused(local_images: Images, open_folder: Path) -> None:
    image = local_images.of_another_machine()
    for use in (
        lambda: images.inspect(image, local_images.engine),
        lambda: images.build("cpu", local_images.engine, base=image),
        DockerSandbox("python3", open_folder / "scratch", image=image).promises,
    ):
        assert "wrong architecture" in fails(use, ImageUnusable)


def test_an_image_without_python_is_refused(local_images: Images, open_folder: Path) -> None:
    image = local_images.of_files("shell", {}, python=False)
    assert "has no python3" in fails(lambda: images.inspect(image, local_images.engine), ImageUnusable)
    sandbox = DockerSandbox("python3", open_folder / "scratch", image=image)
    assert "has no python3" in fails(sandbox.promises, ImageUnusable)


def test_an_image_without_a_pytorch_that_will_do_is_refused(local_images: Images) -> None:
    assert "has no PyTorch" in fails(lambda: images.inspect(local_images.bare, local_images.engine), ImageUnusable)
    assert images.inspect(local_images.bare, local_images.engine, need_torch=False).torch is None
    old = local_images.of_files("old", package("torch", "2.8.0"))
    assert "PyTorch 2.8.0, which is too old: a run needs 2.9" in fails(
        lambda: images.inspect(old, local_images.engine), ImageUnusable
    )


def test_a_pytorch_that_does_not_load_is_told_with_its_reason(local_images: Images) -> None:
    broken = {f"{PACKAGES}/torch/__init__.py": b"raise OSError('libamdhip64.so: cannot open\\x1b[31m')\n"}
    image = local_images.of_files("broken", broken)
    said = fails(lambda: images.inspect(image, local_images.engine), ImageUnusable)
    assert "says of torch: OSError: libamdhip64.so: cannot open" in said and "\x1b" not in said


def test_an_image_that_declares_volumes_is_refused(local_images: Images, open_folder: Path) -> None:
    image = local_images.of_files("volume", {}, "VOLUME /data")
    sandbox = DockerSandbox("python3", open_folder / "scratch", image=image)
    assert "volumes (/data)" in fails(sandbox.promises, ImageUnusable)


@pytest.mark.parametrize(
    ("does", "said"), [("while :; do echo flood; done", "prints without end"), ("while :; do :; done", "not answer")]
)
def test_an_image_that_does_not_answer_is_ended(
    does: str, said: str, local_images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_check, "_TIMEOUT_S", 3.0)
    script = {"usr/local/bin/python3": f"#!/bin/sh\n{does}\n".encode()}
    image = local_images.of_files("mute", script, python=False)
    before = local_images.containers_of(image)
    assert said in fails(lambda: images.inspect(image, local_images.engine), ImageUnusable)
    assert local_images.containers_of(image) == before == []


def test_a_step_that_fails_is_told_with_its_last_words(local_images: Images) -> None:
    lines: list[str] = []
    said = fails(
        lambda: images.build(
            "cpu", local_images.engine, base=local_images.bare, args={**OFFLINE, "TORCH": "2.13.0"}, say=lines.append
        ),
        ImageBuildFailed,
    )
    assert "it failed at RUN set -e" in said and "No module named pip" in said and "status 1" in said
    assert any(line.startswith("Step ") for line in lines)
    assert len(said) < 4000


def test_a_step_that_needs_the_network_is_told_so(local_images: Images) -> None:
    # as `apt-get` says it, on a base that has none: its python3 says it instead
    script = {"usr/local/bin/python3": b"#!/bin/sh\necho Temporary failure resolving somewhere\nexit 100\n"}
    base = local_images.of_files("resolving", script, python=False)
    with pytest.raises(ImageBuildFailed) as caught:
        images.build("cpu", local_images.engine, base=base, args={**OFFLINE, "TORCH": "2.13.0"})
    assert "--yes allows it" in caught.value.hint


def test_a_disk_that_fills_up_is_no_fault_of_the_build(local_images: Images) -> None:
    script = {"usr/local/bin/python3": b"#!/bin/sh\ncat /bin/sh > /dev/full\n"}
    base = local_images.of_files("full", script, python=False)
    with pytest.raises(DiskFull) as caught:
        images.build("cpu", local_images.engine, base=base, args={**OFFLINE, "TORCH": "2.13.0"})
    assert "goes on from there" in caught.value.hint


@pytest.mark.parametrize("given", [{"UNHEARD": "of"}, {"BASE": "other"}, {"TORCH_INDEX": "https://me:secret@there/"}])
def test_arguments_that_cannot_be_taken_are_refused(given: dict[str, str], local_images: Images) -> None:
    said = fails(lambda: images.build("cpu", local_images.engine, args=given), ImageBuildFailed)
    assert "secret" not in said


def test_nothing_is_fetched_unless_the_network_is_given(
    local_images: Images,
    serve: Callable[..., tuple[str, list[str]]],
    registry: Callable[[str, bytes], dict[str, bytes]],
) -> None:
    address, asked = serve(registry("base", local_images.layer()))
    base, name = f"{address}/base:1", local_images.name("fetched")
    said = fails(lambda: images.build("cpu", local_images.engine, base=base, args=OFFLINE), ImageBuildFailed)
    assert "takes a network" in said and asked == []
    assert images.fetched("cpu", local_images.engine, base=base, args=OFFLINE) == [f"the image {base}"]

    local_images.made.append(base)
    lines: list[str] = []
    said = fails(
        lambda: images.build(
            "cpu", local_images.engine, base=base, args=OFFLINE, tag=name, network=True, say=lines.append
        ),
        ImageUnusable,
    )
    assert asked and f"fetching {base}" in lines and images.fetched("cpu", local_images.engine, base=base) != []
    assert images._digest_of(local_images.engine, base)["org.opencontainers.image.base.digest"].startswith("sha256:")
    # it has a shell and nothing else: an image gets its name only when it can be used
    assert f"the image {name} has no python3" in said
    assert not local_images.engine.has_image(name)


def test_a_base_that_cannot_be_fetched_is_told_so(
    local_images: Images, serve: Callable[..., tuple[str, list[str]]]
) -> None:
    address, _ = serve({"/v2/": b"{}"})
    said = fails(
        lambda: images.build("cpu", local_images.engine, base=f"{address}/no:1", network=True), ImageBuildFailed
    )
    assert f"cannot fetch the image {address}/no:1" in said


@pytest.mark.usefixtures("host_network")
@pytest.mark.guard("image build")
def test_an_image_for_a_target_holds_what_it_requires_and_none_of_its_code(
    local_images: Images,
    cpu_image: str,
    tmp_path: Path,
    serve: Callable[..., tuple[str, list[str]]],
    package_index: Callable[..., dict[str, bytes]],
) -> None:
    address, _ = serve(package_index("needed", "1.5", "torch>=2"))
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
    index = {"PIP_INDEX_URL": f"http://{address}/simple"}
    images.build_for(target, local_images.engine, base=cpu_image, tag=name, args=index, network=True, say=lines.append)
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


@pytest.mark.usefixtures("host_network")
def test_a_package_that_writes_over_pytorch_ends_the_build(
    local_images: Images,
    cpu_image: str,
    tmp_path: Path,
    serve: Callable[..., tuple[str, list[str]]],
    package_index: Callable[..., dict[str, bytes]],
) -> None:
    address, _ = serve(package_index("greedy", "1.0", "torch", torch__version="build = 'another'\n"))
    target = write_files(tmp_path / "target", {"requirements.txt": "greedy\n"})
    index = {"PIP_INDEX_URL": f"http://{address}/simple"}
    said = fails(
        lambda: images.build_for(target, local_images.engine, base=cpu_image, args=index, network=True),
        ImageBuildFailed,
    )
    assert "replaced what must stay: the files of torch are not those of the base" in said


def test_nothing_that_a_step_prints_reaches_the_terminal_as_a_command() -> None:
    lines: list[str] = []

    class Engine:
        def building(self, *_: object, **__: object) -> list[dict[str, object]]:
            texts = ("Step 1/1 : RUN x\n", "\x1b]0;title\x07 red\x1b[31m te", "xt\n", "y" * 100_000, "y\n", "last")
            return [*({"stream": text} for text in texts), {"error": "no \x1b", "errorDetail": {"code": 3}}]

    built = progress.build(Engine(), b"", network="none", say=lines.append)  # type: ignore[arg-type]
    assert built.step == "RUN x" and built.error == "it ended with status 3"
    assert built.last_lines[0] == "]0;title red text" and built.last_lines[-1] == "last"
    assert all(line.isprintable() and len(line) <= 240 for line in lines)


def test_a_context_holds_what_was_named_and_is_the_same_each_time() -> None:
    import tarfile

    files = {"b": b"2", "a": b"1"}
    with tarfile.open(fileobj=io.BytesIO(images.context(files))) as tar:
        assert [(entry.name, entry.mtime, entry.uid) for entry in tar] == [("a", 0, 0), ("b", 0, 0)]
    assert images.context(files) == images.context(dict(reversed(files.items())))
    with pytest.raises(ImageBuildFailed):
        images.context({"a": bytes(9 << 20)})


class TestPackages:
    """The script that installs requirements, with this interpreter."""

    def run(self, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        script = folder / "packages.py"
        script.write_text(resources.files("sandbox.images").joinpath("packages.py").read_text())
        # -S and a path of the test's own: what is installed here has no say
        code = (
            f"import runpy, sys; sys.path.insert(0, {str(folder / 'site')!r}); sys.argv = {[str(script), *arguments]}; "
        )
        code += f"runpy.run_path({str(script)!r}, run_name='__main__')"
        return subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True)

    def site(self, folder: Path, name: str, version: str) -> None:
        for path, content in package(name, version).items():
            write_files(folder / "site", {path[len(PACKAGES) + 1 :]: content})

    def test_what_stays_is_written_down_and_checked(self, tmp_path: Path) -> None:
        self.site(tmp_path, "torch", "2.10.0+rocm7.2")
        self.site(tmp_path, "nvidia-nccl", "2.0")
        self.site(tmp_path, "numpy", "2.0")
        assert self.run(tmp_path, "record").returncode == 0
        assert (tmp_path / "base.txt").read_text() == "nvidia-nccl==2.0\ntorch==2.10.0+rocm7.2\n"
        assert self.run(tmp_path, "check").returncode == 0
        (tmp_path / "site" / "torch" / "version.py").write_text("other\n")
        assert "the files of torch are not those of the base" in self.run(tmp_path, "check").stderr

    def test_a_requirement_that_is_met_by_the_base_takes_no_pip(self, tmp_path: Path) -> None:
        self.site(tmp_path, "torch", "2.10.0")
        write_files(
            tmp_path, {"requirements.txt": "--pre\nTorch[opt] >= 1.0\nnvidia-cublas-cu12==1\n", "constraints.txt": ""}
        )
        done = self.run(tmp_path, "install")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines() == [
            "stays as it is: torch 2.10.0",
            "left out: Torch[opt] >= 1.0: the base's 2.10.0 stays",
            "left out: nvidia-cublas-cu12==1: it belongs to another PyTorch",
            "nothing is left to install",
        ]

    def test_without_a_pytorch_in_the_base_the_target_brings_its_own(self, tmp_path: Path) -> None:
        write_files(tmp_path, {"requirements.txt": "torch==2.13.0\n", "constraints.txt": "torch<3\n"})
        done = self.run(tmp_path, "install")
        assert "has no pip" in done.stderr
        assert (tmp_path / "install.txt").read_text() == "torch==2.13.0\n"
        assert json.loads((tmp_path / "base.json").read_text())["versions"] == {}
