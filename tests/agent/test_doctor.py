"""`agent doctor` on this machine: what it tells, and that each problem comes with what mends it."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent import doctor
from sandbox import choose
from sandbox.devices.record import Found, Gpu
from sandbox.docker.provider import DockerSandbox
from sandbox.errors import ContainmentNotHeld
from tests.local_image import Images
from tests.sandbox.conftest import available

TARGET = Path(__file__).resolve().parents[2] / "evals" / "tasks" / "kb_mlp"
SCREEN = 50  # lines
CARD = Gpu(
    vendor="amd", index=0, name="AMD Instinct MI300X", gfx="gfx942", pci="0000:c1:00.0", render_minor=128,
    devices=(Path("/dev/kfd"), Path("/dev/dri/renderD128")), groups=(44, 109), accessible=False, card="0000:c1:00.0",
)  # fmt: skip


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
    for topic in ("engine", "image", "bubblewrap", "gpu", "model", "sandbox", "python", "target", "entry", "checks"):
        assert topic in topics
    (checks,) = (line for line in lines if line.startswith("checks"))
    held, of = checks.split()[1:4:2]
    assert held == of and int(of) > 40
    assert any("torch" in line for line in lines if line.startswith("python"))
    assert len(lines) <= SCREEN


def test_a_sandbox_that_does_not_hold_is_told_and_ends_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        choose, "make", lambda name, wanted: DockerSandbox(
            wanted.python, wanted.scratch, owned=wanted.owned, without=frozenset({"network"}), verified=False
        )
    )  # fmt: skip
    with pytest.raises(ContainmentNotHeld, match="on this machine") as caught:
        check()
    assert caught.value.hint
    assert "does not hold: " in capsys.readouterr().out


def test_in_an_image_its_own_python_is_asked(local_images: Images, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(image=local_images.with_torch, python=Path("python3")) == 0
    told = capsys.readouterr().out
    assert "checks" in told and "does not hold" not in told


def test_no_engine_is_a_problem_with_a_mend(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
    assert check(provider="local") == 0
    told = capsys.readouterr().out
    assert "there is no container engine" in told and "to mend it: Start it" in told
    assert "local: uncontained" in told and "does not promise" in told


@pytest.mark.parametrize(
    ("card", "says"),
    [
        (CARD, "/dev/kfd, /dev/dri/renderD128 is missing"),
        (replace(CARD, accessible=True), "usermod -aG 44,109"),
    ],
    ids=["without its nodes", "closed"],
)
def test_a_gpu_that_cannot_be_used_is_told(
    card: Gpu, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "find_gpus", lambda: Found((card,)))
    assert check(provider="local") == 0
    told = capsys.readouterr().out
    assert "AMD Instinct MI300X (gfx942" in told and says in told


def test_little_disk_and_a_python_without_torch_are_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "LITTLE_DISK", 1 << 60)
    assert check(provider="local", python=Path("/usr/bin/python3")) == 0
    told = capsys.readouterr().out
    assert "--runs-dir" in told and "has no torch" in told and "--python" in told


def test_a_set_endpoint_is_told_and_no_key(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-never-shown")
    assert check(provider="local") == 0
    told = capsys.readouterr().out
    assert "a key is set" in told and "never-shown" not in told
