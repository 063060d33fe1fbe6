"""An engine that is not there, closed to us, dead or elsewhere: one clear message each, with what to do."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import docker
import pytest

from sandbox.docker import endpoint, engine, provider
from sandbox.docker.engine import Engine
from sandbox.docker.provider import DockerSandbox
from sandbox.errors import EngineLost, SandboxUnavailable

NOBODY = (1 << 22) + 1  # beyond every number that Linux gives to a process


def refusal(monkeypatch: pytest.MonkeyPatch, host: str | None) -> SandboxUnavailable:
    if host is None:
        monkeypatch.delenv("DOCKER_HOST", raising=False)
    else:
        monkeypatch.setenv("DOCKER_HOST", host)
    with pytest.raises(SandboxUnavailable) as caught:
        Engine()
    return caught.value


def test_no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "DEFAULT_SOCKETS", (f"{tmp_path}/none.sock", f"{tmp_path}/neither.sock"))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    found = refusal(monkeypatch, None)
    assert found.message == "there is no container engine on this machine"
    assert "Start it" in found.hint and "--sandbox bwrap" in found.hint


def test_a_variable_that_names_no_engine_is_named_with_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = refusal(monkeypatch, f"unix://{tmp_path}/none.sock")
    assert f"{tmp_path}/none.sock, which DOCKER_HOST names" in found.message
    assert "unset DOCKER_HOST" in found.hint


def test_an_engine_whose_daemon_has_died(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as gone:
        gone.bind(str(tmp_path / "dead.sock"))
    monkeypatch.setattr(endpoint, "DEFAULT_SOCKETS", (f"{tmp_path}/none.sock", f"{tmp_path}/dead.sock"))
    assert f"nobody answers at {tmp_path}/dead.sock" in refusal(monkeypatch, None).message


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


@pytest.mark.parametrize(
    ("info", "version"),
    [
        ({"BuildahVersion": "1.41.4"}, {}),
        ({}, {"Components": [{"Name": "Podman Engine", "Version": "5.6.0"}, {"Name": "Conmon"}]}),
    ],
    ids=["by its information", "by its version"],
)
def test_podman_is_refused_by_name(
    info: dict[str, Any], version: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    available_engine()
    monkeypatch.setattr("docker.APIClient.info", lambda self: info)
    if version:  # the SDK asks for it too, to know which API it speaks
        told = {"ApiVersion": "1.41", **version}
        monkeypatch.setattr("docker.APIClient.version", lambda self, api_version=True: told)
    with pytest.raises(SandboxUnavailable, match="is Podman") as caught:
        Engine()
    assert "Docker's engine" in caught.value.hint


@pytest.mark.filterwarnings("ignore:unclosed <socket")  # of the SDK, where it cannot connect
def test_an_engine_that_goes_away_is_lost(tmp_path: Path) -> None:
    available_engine()
    asked = Engine()
    asked._api = docker.APIClient(base_url=f"unix://{tmp_path}/engine.sock", version="1.41", timeout=5.0)
    with contextlib.closing(asked._api), pytest.raises(EngineLost, match="attach to a container") as caught:
        asked.attach("a-container")
    hint = caught.value.hint
    del caught
    gc.collect()
    assert "agent resume" in hint


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


def test_a_container_that_runs_and_is_not_seen_here_is_none_that_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """As from inside a container that was given the engine's socket: nothing here has that number."""
    monkeypatch.setattr(provider, "_NOTICED_S", 0.1)
    running: Any = SimpleNamespace(inspect=lambda made: {"State": {"Running": True}})
    with pytest.raises(SandboxUnavailable, match="not to be seen from here") as caught:
        provider._identity(running, NOBODY, "a" * 64)
    assert "--sandbox bwrap" in caught.value.hint
    told = iter([True, True, False])
    ending: Any = SimpleNamespace(inspect=lambda made: {"State": {"Running": next(told)}})
    assert not provider._identity(ending, NOBODY, "a" * 64).alive


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


def test_beyond_a_closed_engine_the_users_own_is_found(monkeypatch: pytest.MonkeyPatch, nobody: None) -> None:
    """It runs without root, and is refused for that: by `Engine`, which says so."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as ending:
        closed, own = Path(folder, "closed.sock"), Path(folder, "docker.sock")
        for place in (closed, own):
            listening = ending.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            listening.bind(str(place))
            listening.listen(1)
        closed.chmod(0)
        monkeypatch.delenv("DOCKER_HOST", raising=False)
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        monkeypatch.setattr(endpoint, "DEFAULT_SOCKETS", (str(closed),))
        assert endpoint.find_socket() == str(own)
