"""`agent image` asks before it uses the network, says what it takes from where, and makes what it said.

With the real command line and a real engine.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent import cli
from agent.errors import Declined
from sandbox.docker import images
from sandbox.errors import ImageBuildFailed, ImageUnusable
from tests.agent.whole_runs import Terminal
from tests.files import write_files
from tests.local_image import TORCH, Images

Target = Callable[[str], Path]


@pytest.fixture(autouse=True)
def nobody_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())


@pytest.fixture
def target(tmp_path: Path) -> Target:
    return lambda requirements: write_files(tmp_path / "repo", {"requirements.txt": requirements, "model.py": "x"})


Asked = list[tuple[object, dict[str, Any]]]


@pytest.fixture
def pretend(local_images: Images, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[str, Asked]]:
    """Makes an image with the labels of one that was made instead of building; returns its name and what was asked."""

    def start(torch: str = TORCH, registry: str = "") -> tuple[str, Asked]:
        labels = f'LABEL ratchet.image="cpu" ratchet.torch="{torch}" ratchet.python="3"'
        name, asked = registry + local_images.of_files("as-if", {}, labels, python=False), Asked()

        def build(what: object, engine: object, **given: Any) -> str:
            asked.append((what, given))
            return name

        monkeypatch.setattr(images, "build", build)
        monkeypatch.setattr(images, "build_for", build)
        return name, asked

    return start


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


def test_an_image_may_be_named_with_its_registry_and_is_said_to_lack_a_pytorch(
    local_images: Images, pretend: Callable[..., tuple[str, Asked]], capsys: pytest.CaptureFixture[str]
) -> None:
    """The engine lists it by the name without."""
    name, _ = pretend(torch="", registry="docker.io/")
    assert image("build", "cpu", "--base", local_images.bare, "--arg", "COMPILER=no", "--tag", name) == 0
    told = capsys.readouterr()
    assert told.out == f"{name}\n" and "it has no PyTorch: a run needs 2.9 or newer" in told.err


def test_what_is_installed_for_a_target_is_told_and_is_what_was_agreed_to(
    local_images: Images,
    target: Target,
    pretend: Callable[..., tuple[str, Asked]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, (name, asked) = target("torch==1.0  # the base's stays\n./local\n"), pretend()
    assert image("build", "--for", folder, "--base", local_images.with_torch, "--yes") == 0
    ((given, how),) = asked
    assert (given, how["wanted"].lines, how["network"]) == (folder, ["torch==1.0"], True)
    told = capsys.readouterr()
    assert told.out == f"{name}\n"
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


@pytest.mark.parametrize("answer", ["y\n", "n\n", "", "what?\n"])
def test_a_person_is_asked_and_heard(
    answer: str,
    local_images: Images,
    target: Target,
    pretend: Callable[..., tuple[str, Asked]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said, (_, asked) = Terminal(), pretend()
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    monkeypatch.setattr(sys, "stderr", said)
    status = image("build", "--for", target("numpy\n"), "--base", local_images.bare)
    assert status == (0 if answer == "y\n" else Declined.exit_status)
    assert "build scripts" in said.getvalue() and "Go on? [y/N]" in said.getvalue()
    assert [how["network"] for _, how in asked] == [True] * (answer == "y\n")


def test_arguments_go_to_the_image_that_takes_them(
    local_images: Images, target: Target, pretend: Callable[..., tuple[str, Asked]]
) -> None:
    (name, asked), folder = pretend(), target("numpy\n")
    options = ("--arg", "COMPILER=no", "--arg", "PIP_INDEX_URL=http://index.example", "--yes")
    assert image("build", "rocm", "--base", local_images.bare, "--for", folder, *options) == 0
    (first, of_kind), (second, of_target) = asked
    assert (first, of_kind["args"], of_kind["network"]) == ("rocm", {"COMPILER": "no"}, False)
    index = {"PIP_INDEX_URL": "http://index.example"}
    assert (second, of_target["base"], of_target["args"]) == (folder, name, index)


def test_errors_have_statuses_of_their_own(local_images: Images, target: Target) -> None:
    other = local_images.of_another_machine()
    assert image("build", "cpu", "--base", other, "--arg", "COMPILER=no") == ImageUnusable.exit_status == 35
    folder = target("-r ../outside.txt\n")
    assert image("build", "--for", folder, "--base", local_images.bare, "--yes") == ImageBuildFailed.exit_status == 36
