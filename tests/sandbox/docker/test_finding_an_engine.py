"""An engine that is not there, closed to us, dead or elsewhere: one clear message each, with what to do."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.docker import engine
from sandbox.docker.engine import Engine
from sandbox.docker.provider import DockerSandbox
from sandbox.errors import SandboxUnavailable


def refusal(monkeypatch: pytest.MonkeyPatch, host: str) -> SandboxUnavailable:
    monkeypatch.setenv("DOCKER_HOST", host)
    with pytest.raises(SandboxUnavailable) as caught:
        Engine()
    return caught.value


def test_no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = refusal(monkeypatch, f"unix://{tmp_path}/none.sock")
    assert found.message == "there is no container engine on this machine"
    assert "Start it" in found.hint and "--sandbox bwrap" in found.hint


def test_an_engine_whose_daemon_has_died(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as gone:
        gone.bind(str(tmp_path / "dead.sock"))
    assert "nobody answers at" in refusal(monkeypatch, f"unix://{tmp_path}/dead.sock").message


def test_an_engine_that_answers_with_something_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_TIMEOUT_S", 0.5)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
        silent.bind(str(tmp_path / "silent.sock"))
        silent.listen(8)
        found = refusal(monkeypatch, f"unix://{tmp_path}/silent.sock")
    assert "does not answer" in found.message and "docker info" in found.hint


def test_an_engine_on_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    found = refusal(monkeypatch, "tcp://192.0.2.1:2375")
    assert "only one on this machine can be given files" in found.message
    assert "DOCKER_HOST" in found.hint


@pytest.mark.parametrize(("option", "why"), [("name=rootless", "without root"), ("name=userns", "maps user ids")])
def test_an_engine_for_which_we_are_somebody_else(option: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    available_engine()
    monkeypatch.setattr("docker.APIClient.info", lambda self: {"SecurityOptions": ["name=seccomp", option]})
    with pytest.raises(SandboxUnavailable, match=why) as caught:
        Engine()
    assert "--sandbox bwrap" in caught.value.hint


def test_an_engine_whose_processes_are_not_those_seen_here(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As from inside a container, or with a virtual machine between: its numbers are somebody else's here."""
    available_engine()
    bystander = os.getpid()
    start = Engine.start
    monkeypatch.setattr(Engine, "start", lambda self, made: start(self, made) and bystander)
    with pytest.raises(SandboxUnavailable, match="not to be seen from here"):
        DockerSandbox(sys.executable, open_folder / "scratch").promises()
    assert list((open_folder / "scratch" / "records").iterdir()) == []


def available_engine() -> None:
    try:
        Engine()
    except SandboxUnavailable as error:
        if os.environ.get("RATCHET_REQUIRE_DOCKER") == "1":
            raise
        pytest.skip(f"there is no engine here: {error}")


@pytest.fixture
def nobody() -> Iterator[None]:
    """A user to whom nothing is open. Root is refused nothing."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_an_engine_that_is_closed_to_us(monkeypatch: pytest.MonkeyPatch, nobody: None) -> None:
    place = Path("/tmp") / f"closed-{os.getpid()}.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(place))
        try:
            place.chmod(0)
            listening.listen(1)
            found = refusal(monkeypatch, f"unix://{place}")
        finally:
            place.unlink()
    assert "you may not use the container engine" in found.message
    assert "usermod" in found.hint
