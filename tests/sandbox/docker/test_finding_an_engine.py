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
import docker.errors
import pytest
import requests

from sandbox.contract import Command
from sandbox.docker import container, endpoint, engine, provider
from sandbox.docker.engine import Engine
from sandbox.docker.provider import DockerSandbox
from sandbox.errors import EngineLost, SandboxError, SandboxUnavailable
from tests.local_image import engine_here

NOBODY = (1 << 22) + 1  # beyond every number that Linux gives to a process


def refusal(monkeypatch: pytest.MonkeyPatch, host: str | None) -> str:
    """Its message and its hint."""
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    if host:
        monkeypatch.setenv("DOCKER_HOST", host)
    with pytest.raises(SandboxUnavailable) as caught:
        Engine()
    assert caught.value.hint
    return f"{caught.value.message}. {caught.value.hint}"


@contextlib.contextmanager
def listening(place: Path, mode: int = 0o666) -> Iterator[None]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.bind(str(place))
        place.chmod(mode)
        sock.listen(8)
        yield


def test_an_engine_that_is_not_there_dead_mute_or_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    none, dead, mute = (tmp_path / name for name in ("none.sock", "dead.sock", "mute.sock"))
    monkeypatch.setattr(endpoint, "DEFAULT_SOCKETS", (f"{none}",))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    said = refusal(monkeypatch, None)
    assert said.startswith("there is no container engine on this machine. Start it") and "--sandbox bwrap" in said
    said = refusal(monkeypatch, f"unix://{none}")
    assert f"{none}, which DOCKER_HOST names" in said and "unset DOCKER_HOST" in said
    with listening(dead):
        pass
    monkeypatch.setattr(endpoint, "DEFAULT_SOCKETS", (f"{none}", f"{dead}"))
    assert f"no engine answers at {dead}" in refusal(monkeypatch, None)
    monkeypatch.setattr(engine, "_TIMEOUT_S", 0.5)
    with listening(mute):
        said = refusal(monkeypatch, f"unix://{mute}")
    assert "does not answer" in said and "docker info" in said
    said = refusal(monkeypatch, "tcp://192.0.2.1:2375")
    assert "only one on this machine can be given files" in said and "Unset DOCKER_HOST" in said


PODMAN = {"Components": [{"Name": "Podman Engine", "Version": "5.6.0"}, {"Name": "Conmon"}]}


@pytest.mark.parametrize(
    ("info", "version", "why", "fix"),
    [
        ({"BuildahVersion": "1.41.4"}, {}, "is Podman", "Docker's engine"),
        ({}, PODMAN, "is Podman", "Docker's engine"),
        ({"SecurityOptions": ["name=seccomp", "name=rootless"]}, {}, "without root", "--sandbox bwrap"),
        ({"SecurityOptions": ["name=seccomp", "name=userns"]}, {}, "maps user ids", "--sandbox bwrap"),
    ],
    ids=["Podman by its information", "Podman by its version", "rootless", "user ids"],
)
def test_an_engine_with_which_nothing_was_tried_is_refused(
    info: dict[str, Any], version: dict[str, Any], why: str, fix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine_here()
    monkeypatch.setattr("docker.APIClient.info", lambda self: info)
    if version:  # the SDK asks for it too, to know which API it speaks
        told = {"ApiVersion": "1.41", **version}
        monkeypatch.setattr("docker.APIClient.version", lambda self, api_version=True: told)
    said = refusal(monkeypatch, None)
    assert why in said and fix in said


@pytest.mark.filterwarnings("ignore:unclosed <socket")  # of the SDK, where it cannot connect
def test_an_engine_that_goes_away_is_lost(tmp_path: Path) -> None:
    engine_here()
    asked = Engine()
    asked._api = docker.APIClient(base_url=f"unix://{tmp_path}/engine.sock", version="1.41", timeout=5.0)
    with contextlib.closing(asked._api), pytest.raises(EngineLost, match="attach to a container") as caught:
        asked.attach("a-container")
    hint = caught.value.hint
    del caught
    gc.collect()
    assert "agent resume" in hint


def test_a_busy_engine_is_asked_again_to_remove(monkeypatch: pytest.MonkeyPatch) -> None:
    engine_here()
    asked, said = Engine(), [404, 409, 500]

    def remove(*_: Any, **__: Any) -> None:
        busy = requests.Response()
        busy.status_code = said.pop()
        docker.errors.create_api_error_from_http_exception(requests.HTTPError("no exit event yet", response=busy))

    monkeypatch.setattr(asked._api, "remove_container", remove)
    asked.remove("a-container")
    assert not said


def test_what_an_engine_refuses_at_the_end_is_told(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine_here()
    remove = Engine.remove

    def refuse(self: Engine, made: str) -> None:
        remove(self, made)
        raise SandboxError("the engine cannot remove a container: it is busy")

    sandbox = DockerSandbox(sys.executable, open_folder / "scratch")
    process = sandbox.start(Command(argv=(sys.executable, "-c", "input()"), cwd=open_folder, role="probe"))
    monkeypatch.setattr(Engine, "remove", refuse)
    with pytest.raises(SandboxError, match="cannot remove a container: it is busy"):
        process.stop()
    assert process.stop().reason == "engine lost"


def test_an_engine_whose_processes_are_not_those_seen_here(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As from inside a container, or with a virtual machine between: its numbers are somebody else's here."""
    engine_here()
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


def test_an_engine_that_is_closed_to_us_is_told_unless_a_users_own_is_found(
    monkeypatch: pytest.MonkeyPatch, nobody: None
) -> None:
    """The user's own runs without root, and is refused for that: by `Engine`, which says so."""
    with tempfile.TemporaryDirectory() as folder:
        closed, own = Path(folder, "closed.sock"), Path(folder, "docker.sock")
        with listening(closed, 0):
            said = refusal(monkeypatch, f"unix://{closed}")
            assert "you may not use the container engine" in said and "usermod" in said
            monkeypatch.delenv("DOCKER_HOST")
            monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
            monkeypatch.setattr(endpoint, "DEFAULT_SOCKETS", (str(closed),))
            with listening(own):
                assert endpoint.find_socket() == str(own)


def test_neither_process_1_nor_the_control_groups_are_left_to_the_engine() -> None:
    given = container.Outside(1000, 1000, Path("/run/channel"), ("/init.py",), ())
    options = container.host_options(Command(("/bin/true",), Path("/"), "worker"), given)
    assert options["init"] is False and options["cgroupns"] == "private"
