"""`agent doctor` on this machine: what it tells, and that each problem comes with its fix."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent import cli, doctor
from sandbox import choose
from sandbox.devices import lock
from sandbox.devices.record import Found, Gpu
from sandbox.docker.provider import DockerSandbox
from sandbox.errors import ContainmentNotHeld
from tests.local_image import Images
from tests.sandbox.attacks.weaken import weaken
from tests.sandbox.conftest import available
from tests.sandbox.devices import machines

TARGET = Path(__file__).resolve().parents[2] / "evals" / "tasks" / "kb_mlp"
SCREEN = 50  # lines
CARD = machines.gpu(
    name="AMD Instinct MI300X",
    gfx="gfx942",
    devices=(Path("/dev/kfd"), Path("/dev/dri/renderD128")),
    groups=(44, 109),
    accessible=False,
)


def check(**given: Any) -> int:
    return doctor.check(
        **{"target": None, "entry": None, "python": Path(sys.executable), "provider": "docker", "image": None, **given}
    )


@pytest.fixture(autouse=True)
def engine(tmp_path: Path) -> None:
    available(DockerSandbox(sys.executable, tmp_path / "probe"))


def test_on_one_screen_it_tells_what_is_here_and_that_it_holds(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(target=TARGET, entry="bench.py") == 0
    lines = capsys.readouterr().out.splitlines()
    topics = [line.split()[0] for line in lines if not line.startswith(" ")]
    assert topics[:3] == ["machine", "disk", "git"]
    assert {"engine", "image", "bubblewrap", "gpu", "model", "sandbox", "python", "target", "entry"} <= set(topics)
    assert any("torch" in line for line in lines if line.startswith("python"))
    assert len(lines) <= SCREEN


def test_a_sandbox_that_does_not_hold_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    weaken(monkeypatch, "docker", ["network"])
    with pytest.raises(ContainmentNotHeld, match="network interfaces") as caught:
        check()
    assert caught.value.hint


def test_a_gpu_that_another_run_holds_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    card = replace(CARD, accessible=True, card=f"0000:{os.getpid():x}.0")
    monkeypatch.setattr(lock, "FOLDERS", (tmp_path,))
    monkeypatch.setattr(lock.acquire, "__kwdefaults__", {**lock.acquire.__kwdefaults__, "folders": lock.FOLDERS})
    monkeypatch.setattr(doctor, "choose_gpu", lambda number, environment: card)
    wanted: list[Gpu | None] = []
    make = choose.make
    monkeypatch.setattr(choose, "make", lambda name, asked: wanted.append(asked.gpu) or make(name, asked))
    with lock.acquire(card, run_id="20261122-010203-abcd"):
        assert check(provider="local", target=TARGET, entry="bench.py") == 0
    told = capsys.readouterr().out
    assert "no GPU was tried: " in told and "in use by run 20261122-010203-abcd" in told
    assert "not looked at while the GPU is in use" in told
    assert wanted == [None]
    with lock.acquire(card):
        """It was let go of, or never taken."""


@pytest.mark.slow
def test_in_an_image_its_own_python_is_asked(local_images: Images, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", "--image", local_images.with_torch]) == 0
    told = capsys.readouterr().out
    assert "verified from inside" in told


@pytest.mark.parametrize(
    ("card", "says"),
    [
        (CARD, ["/dev/kfd, /dev/dri/renderD128 is missing"]),
        (
            replace(CARD, accessible=True),
            [
                "no obstacle with docker, which passes group 44,109 in",
                "for bwrap and local: sudo usermod -aG 44,109 $USER",
            ],
        ),
        (
            replace(CARD, accessible=True, groups=()),
            ["/dev/kfd is closed to you, and to every group", "Fix: give it to a group (sudo chgrp render /dev/kfd"],
        ),
    ],
    ids=["without its nodes", "closed", "closed to all"],
)
def test_a_gpu_that_cannot_be_used_is_told(card: Gpu, says: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_gpus", lambda: Found((card,)))
    told = "\n".join(text for _, text in doctor._gpus())
    assert "AMD Instinct MI300X (gfx942" in told and all(words in told for words in says)


def test_what_is_not_used_and_each_problem_come_with_their_fix_and_a_key_is_never_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-never-shown")
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    sizes = dict.fromkeys(("f_frsize", "f_blocks", "f_bfree", "f_bavail"), 1 << 20)
    room = SimpleNamespace(f_flag=os.ST_NOEXEC, f_files=0, **sizes)
    monkeypatch.setattr(os, "statvfs", lambda folder: room)
    monkeypatch.setattr(doctor, "LITTLE_DISK", 1 << 60)
    assert check(provider=None, python=Path("/usr/bin/python3")) == 0
    told = capsys.readouterr().out
    lines = [line.strip() for line in told.splitlines()]
    assert any(line.startswith("sandbox") and "local: uncontained" in line for line in lines)
    for problem, why, fix in (
        ("docker is not used: ", "no container engine", "Start it"),
        ("bwrap is not used: ", "uid map", "apparmor_restrict"),
    ):
        (at,) = (number for number, line in enumerate(lines) if line.startswith(problem))
        assert why in lines[at] and lines[at + 1].startswith("Fix: ") and fix in lines[at + 1]
        assert "choose --sandbox" not in lines[at + 1]
    assert f"there is no container engine at {tmp_path}/nobody.sock" in told
    assert "--runs-dir" in told and "has no torch" in told and "Fix: --python" in told
    assert "mounted noexec" in told and "TMPDIR" in told
    assert "a key is set" in told and "never-shown" not in told
