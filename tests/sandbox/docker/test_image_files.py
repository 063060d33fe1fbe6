"""What goes into an image and what a build prints, without an engine: bases, contexts, packages, lines of a step."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from sandbox.docker import images, progress
from sandbox.errors import ImageBuildFailed
from tests.files import write_files
from tests.local_image import PACKAGES, package


def test_bases_are_pinned() -> None:
    for kind in images.KINDS:
        name, _, tag = images.arguments_of(kind)["BASE"].partition(":")
        assert name and any(sign.isdigit() for sign in tag) and "latest" not in tag


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
    files = {"b": b"2", "a": b"1"}
    with tarfile.open(fileobj=io.BytesIO(images.context(files))) as tar:
        assert [(entry.name, entry.mtime, entry.uid) for entry in tar] == [("a", 0, 0), ("b", 0, 0)]
    assert images.context(files) == images.context(dict(reversed(files.items())))
    with pytest.raises(ImageBuildFailed):
        images.context({"a": bytes(9 << 20)})


@pytest.fixture
def packages(tmp_path: Path) -> Callable[[str], subprocess.CompletedProcess[str]]:
    """Runs the script that installs requirements, with this interpreter."""

    def run(order: str) -> subprocess.CompletedProcess[str]:
        script = tmp_path / "packages.py"
        script.write_text(resources.files("sandbox.images").joinpath("packages.py").read_text())
        # -S and a path of the test's own: what is installed here has no say
        code = (
            f"import runpy, sys; sys.path.insert(0, {str(tmp_path / 'site')!r}); sys.argv = {[str(script), order]}; "
            f"runpy.run_path({str(script)!r}, run_name='__main__')"
        )
        return subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True)

    return run


def install(folder: Path, name: str, version: str) -> None:
    for path, content in package(name, version).items():
        write_files(folder / "site", {path[len(PACKAGES) + 1 :]: content})


def test_what_stays_is_written_down_and_checked(packages: Callable[..., Any], tmp_path: Path) -> None:
    for name, version in (("torch", "2.10.0+rocm7.2"), ("nvidia-nccl", "2.0"), ("numpy", "2.0")):
        install(tmp_path, name, version)
    assert packages("record").returncode == 0
    assert (tmp_path / "base.txt").read_text() == "nvidia-nccl==2.0\ntorch==2.10.0+rocm7.2\n"
    assert packages("check").returncode == 0
    (tmp_path / "site" / "torch" / "version.py").write_text("other\n")
    assert "the files of torch are not those of the base" in packages("check").stderr


def test_a_requirement_that_is_met_by_the_base_takes_no_pip(packages: Callable[..., Any], tmp_path: Path) -> None:
    install(tmp_path, "torch", "2.10.0")
    required = "--pre\nTorch[opt] >= 1.0\nnvidia-cublas-cu12==1\n"
    write_files(tmp_path, {"requirements.txt": required, "constraints.txt": ""})
    done = packages("install")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "stays as it is: torch 2.10.0",
        "left out: Torch[opt] >= 1.0: the base's 2.10.0 stays",
        "left out: nvidia-cublas-cu12==1: it belongs to another PyTorch",
        "nothing is left to install",
    ]


def test_without_a_pytorch_in_the_base_the_target_brings_its_own(packages: Callable[..., Any], tmp_path: Path) -> None:
    write_files(tmp_path, {"requirements.txt": "torch==2.13.0\n", "constraints.txt": "torch<3\n"})
    assert "has no pip" in packages("install").stderr
    assert (tmp_path / "install.txt").read_text() == "torch==2.13.0\n"
    assert json.loads((tmp_path / "base.json").read_text())["versions"] == {}
