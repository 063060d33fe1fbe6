"""`agent image` asks before it uses the network, says what it takes from where, and makes what it said.

With the real command line and a real engine.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agent import cli
from agent.errors import Declined, WrongUsage
from sandbox.docker import images
from sandbox.docker.requirements import Requirements
from sandbox.errors import ImageBuildFailed, ImageUnusable
from tests.files import write_files
from tests.local_image import TORCH, Images

Target = Callable[[str], Path]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def nobody_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())


@pytest.fixture
def target(tmp_path: Path) -> Target:
    return lambda requirements: write_files(tmp_path / "repo", {"requirements.txt": requirements, "model.py": "x"})


def made_as_if(local_images: Images, kind: str, torch: str) -> str:
    """An image with the labels of one that was made."""
    labels = f'LABEL ratchet.image="{kind}" ratchet.torch="{torch}" ratchet.python="3"'
    return local_images.of_files("as-if", {}, labels, python=False)


def image(*arguments: object) -> int:
    return cli.main(["image", *map(str, arguments)])


@pytest.mark.slow
def test_what_needs_no_network_is_made_without_a_question(
    local_images: Images, capsys: pytest.CaptureFixture[str]
) -> None:
    name = local_images.name("by-hand")
    assert image("build", "cpu", "--base", local_images.with_torch, "--arg", "COMPILER=no", "--tag", name) == 0
    told = capsys.readouterr()
    assert told.out == f"{name}\n"
    assert f"torch {TORCH}, triton none" in told.err and f"--image {name}" in told.err and "Step 1/" in told.err

    assert image("list") == 0
    (row,) = (line.split() for line in capsys.readouterr().out.splitlines() if line.startswith(name))
    assert row[1] == "cpu" and row[-3:] == [sys.version.split()[0], TORCH, "none"]


def test_an_image_may_be_named_with_its_registry(
    local_images: Images, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The engine lists it by the name without."""
    made = made_as_if(local_images, "cpu", TORCH)
    monkeypatch.setattr(images, "build", lambda *_, **__: f"docker.io/{made}")
    monkeypatch.setattr(images, "fetched", lambda *_, **__: [])
    assert image("build", "cpu", "--tag", f"docker.io/{made}") == 0
    told = capsys.readouterr()
    assert told.out == f"docker.io/{made}\n" and f"torch {TORCH}" in told.err


def test_what_is_installed_for_a_target_is_told_and_is_what_was_agreed_to(
    local_images: Images, target: Target, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = target("torch==1.0  # the base's stays\n./local\n")

    def build_for(given: Path, engine: object, *, wanted: Requirements, network: bool, **_: object) -> str:
        assert (given, wanted.lines, network) == (folder, ["torch==1.0"], True)
        return made_as_if(local_images, "target", TORCH)

    monkeypatch.setattr(images, "build_for", build_for)
    assert image("build", "--for", folder, "--base", local_images.with_torch, "--yes") == 0
    told = capsys.readouterr()
    assert told.out == f"{local_images.made[-1]}\n"
    assert "to install, from requirements.txt:\n    torch==1.0\n" in told.err
    assert "left out, since it lies in the target or on this disk: ./local" in told.err


def test_without_a_yes_nothing_is_done(
    local_images: Images, target: Target, capsys: pytest.CaptureFixture[str]
) -> None:
    index = "https://index.example/simple"
    folder = target(f"--extra-index-url {index}\nnumpy\n")
    name = local_images.name("never")
    assert image("build", "--for", folder, "--base", local_images.bare, "--tag", name) == Declined.exit_status
    told = capsys.readouterr().err
    assert f"from pip's default index, {index}" in told and "--yes allows it" in told
    assert image("build", "cpu", "--base", local_images.bare, "--tag", name) == Declined.exit_status
    assert "a C++ compiler, if the base has none" in capsys.readouterr().err
    assert not local_images.engine.has_image(name)


@pytest.mark.parametrize("answer", ["n\n", "", "what?\n"])
def test_a_person_who_says_no_is_heard(
    answer: str, local_images: Images, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Terminal()
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    monkeypatch.setattr(sys, "stderr", said)
    assert image("build", "--for", target("numpy\n"), "--base", local_images.bare) == Declined.exit_status
    assert "build scripts" in said.getvalue() and "Go on? [y/N]" in said.getvalue()


def test_a_person_who_says_yes_is_heard(
    local_images: Images, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: dict[str, object] = {}
    made = made_as_if(local_images, "cpu", TORCH)
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(images, "build", lambda kind, engine, **given: asked.update(given) or made)
    assert image("build", "cpu", "--base", local_images.bare, "--arg", "TORCH=2.13.0") == 0
    assert (asked["network"], asked["args"]) == (True, {"TORCH": "2.13.0"})
    assert capsys.readouterr().out == f"{made}\n"


def test_an_image_without_pytorch_is_made_and_said_to_lack_it(
    local_images: Images, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    without = made_as_if(local_images, "cpu", "")
    monkeypatch.setattr(images, "build", lambda *_, **__: without)
    assert image("build", "cpu", "--base", local_images.bare, "--arg", "COMPILER=no") == 0
    assert "it has no PyTorch: a run needs 2.9 or newer" in capsys.readouterr().err


def test_arguments_go_to_the_image_that_takes_them(
    local_images: Images, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[object, object, object]] = []

    def build(kind: str, engine: object, **given: object) -> str:
        made.append((kind, given["args"], given["network"]))
        return "first:1"

    def build_for(folder: Path, engine: object, **given: object) -> str:
        made.append((given["base"], given["args"], given["network"]))
        return made_as_if(local_images, "target", TORCH)

    monkeypatch.setattr(images, "build", build)
    monkeypatch.setattr(images, "build_for", build_for)
    options = ("--arg", "COMPILER=no", "--arg", "PIP_INDEX_URL=http://index.example", "--yes")
    assert image("build", "rocm", "--base", local_images.bare, "--for", target("numpy\n"), *options) == 0
    index = {"PIP_INDEX_URL": "http://index.example"}
    assert made == [("rocm", {"COMPILER": "no"}, False), ("first:1", index, True)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["moon"], "invalid choice"),
        (["cpu", "--arg", "TORCH"], "is not NAME=VALUE"),
        (["cpu", "--tag", "Upper Case:1"], "is no name for an image"),
        (["cpu", "--tag", "no-tag"], "is no name for an image"),
        (["cpu", "--arg", "UNHEARD=of"], "there is no argument UNHEARD"),
        (["--for", "nowhere"], "there is no folder nowhere"),
    ],
)
def test_what_cannot_be_is_wrong_usage(
    options: list[str],
    said: str,
    local_images: Images,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        status = image("build", *options)
    except SystemExit as end:
        status = end.code
    assert status == WrongUsage.exit_status
    assert said in capsys.readouterr().err


def test_errors_have_statuses_of_their_own(local_images: Images, target: Target) -> None:
    other = local_images.of_another_machine()
    assert image("build", "cpu", "--base", other, "--arg", "COMPILER=no") == ImageUnusable.exit_status == 35
    folder = target("-r ../outside.txt\n")
    assert image("build", "--for", folder, "--base", local_images.bare, "--yes") == ImageBuildFailed.exit_status == 36
