"""What only the local provider does: its promises, its channel, its folders and its errors."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox.contract import Command, ProcessEnded
from sandbox.errors import SandboxError, SandboxUnavailable
from sandbox.local.provider import LocalSandbox
from sandbox.supervision import supervisor
from sandbox.supervision.process import SupervisedProcess
from tests.sandbox.uncontained import WithSignals

Until = Callable[..., Any]


@pytest.fixture
def local(tmp_path: Path) -> LocalSandbox:
    return LocalSandbox(sys.executable, tmp_path / "scratch")


def test_it_never_calls_itself_containment(local: LocalSandbox) -> None:
    promises = local.promises()
    assert not promises.contained
    assert "local is not containment" in promises.notes[0]


def test_whatever_is_not_promised_has_a_note(tmp_path: Path) -> None:
    promises = WithSignals(sys.executable, tmp_path).promises()
    assert not any(promises.by_name().values())
    notes = "\n".join(promises.notes)
    for words in (
        "reach the network",
        "own user id",
        "freezing is by signals",
        "not enforced",
        "not held back",
        "outlive",
    ):
        assert words in notes


def test_an_interpreter_that_is_not_there_makes_it_unavailable(tmp_path: Path) -> None:
    with pytest.raises(SandboxUnavailable, match="missing/python") as caught:
        LocalSandbox(tmp_path / "missing/python", tmp_path / "scratch").promises()
    assert "--python" in caught.value.hint


def test_a_command_that_cannot_be_executed_is_a_sandbox_error(local: LocalSandbox, tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="nothing-here cannot be executed"):
        local.start(Command(argv=("/nothing-here",), cwd=tmp_path, role="worker"))
    assert list((tmp_path / "scratch" / "records").iterdir()) == []


def test_a_slow_command_times_out_and_still_can_be_stopped(tmp_path: Path) -> None:
    sandbox = LocalSandbox(sys.executable, tmp_path / "scratch", connect_timeout_s=0.2)
    argv = (sys.executable, "-c", "import time; time.sleep(600)")
    process = sandbox.start(Command(argv=argv, cwd=tmp_path, role="worker"))
    with pytest.raises(TimeoutError, match="worker did not connect"):
        _ = process.channel
    assert process.stop().reason == "stopped"
    with pytest.raises(ProcessEnded):
        _ = process.channel


def test_a_stranger_on_the_channel_is_turned_away(local: LocalSandbox, guests_of: Any) -> None:
    process: SupervisedProcess = guests_of(local)("import time; time.sleep(600)", connects=False)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stranger:
        stranger.connect(process._filed.record.channel)
        stranger.settimeout(20.0)
        process._connect_timeout_s = 0.2
        with pytest.raises(TimeoutError):
            _ = process.channel
        assert stranger.recv(1) == b""


def test_the_socket_is_gone_once_the_channel_is_connected(local: LocalSandbox, guests_of: Any) -> None:
    process: SupervisedProcess = guests_of(local)("channel.receive()")
    path = Path(process._filed.record.channel)
    assert path.is_socket()
    _ = process.channel
    assert not path.exists()


def test_a_long_scratch_path_still_holds_a_socket(guests_of: Any, tmp_path: Path) -> None:
    sandbox = LocalSandbox(sys.executable, tmp_path / ("long" * 30))
    process = guests_of(sandbox)("channel.send({'ok': True})\nchannel.receive()")
    assert process.channel.receive(20.0) == {"ok": True}


def test_scratch_is_closed_to_others(local: LocalSandbox, tmp_path: Path) -> None:
    local.promises()
    assert (tmp_path / "scratch").stat().st_mode & 0o066 == 0
    assert (tmp_path / "scratch" / "records").stat().st_mode & 0o077 == 0


def test_no_privilege_survives(local: LocalSandbox, guests_of: Any) -> None:
    code = """
lines = open("/proc/self/status").read().splitlines()
channel.send(dict(line.split(":\\t", 1) for line in lines if ":\\t" in line))
channel.receive()
"""
    told = guests_of(local)(code).channel.receive(20.0)
    read_search = 1 << 2
    assert int(told["CapEff"], 16) & ~read_search == 0
    assert told["NoNewPrivs"] == "1"


def test_priority_cannot_be_raised(local: LocalSandbox, guests_of: Any) -> None:
    code = "try: os.nice(-5); done = True\nexcept PermissionError: done = False\nchannel.send({'raised': done})"
    assert guests_of(local)(code).channel.receive(20.0) == {"raised": False}


@pytest.mark.parametrize("provider", [LocalSandbox, WithSignals])
def test_a_killed_supervisor_takes_everything_along(
    guests_of: Any, tmp_path: Path, until: Until, marked: Any, provider: type[LocalSandbox]
) -> None:
    code = "import time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(600)\nchannel.send({}); channel.receive()"
    mark = f"MARK={secrets.token_hex(8)}"
    process = guests_of(provider(sys.executable, tmp_path))(code, env=dict([mark.split("=")]))
    process.channel.receive(20.0)
    assert len(marked(mark)) == 2
    os.kill(process.pid, signal.SIGKILL)
    assert until(process.poll).reason == "supervisor killed"
    until(lambda: marked(mark) == [])


def test_the_supervisor_holds_nothing_of_the_agents_environment(
    local: LocalSandbox, guests_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    process = guests_of(local)("channel.receive()")
    try:
        held = Path(f"/proc/{process.pid}/environ").read_bytes()
    except PermissionError:  # it is closed to its own user too, and only root may look
        held = b""
    assert b"secret" not in held


def test_the_supervisor_needs_no_package_on_its_path(tmp_path: Path) -> None:
    order = b'{"host_pid": 1, "argv": [], "cwd": "/", "env": {}, "bounds": []}'
    command = [sys.executable, "-I", "-S", supervisor.__file__, "1"]
    done = subprocess.run(command, input=order, cwd="/", capture_output=True)
    assert (done.returncode, done.stderr) == (1, b"")  # it is not process 1 that started it


def test_a_supervisor_that_breaks_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sandbox.supervision.spawner._SCRIPT", tmp_path / "missing.py")
    with pytest.raises(SandboxError, match=r"missing\.py"):
        LocalSandbox(sys.executable, tmp_path / "scratch").promises()
