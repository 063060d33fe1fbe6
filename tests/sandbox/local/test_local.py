"""What only the local provider does: its promises, its channel, its folders and its errors."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sandbox.contract import Command
from sandbox.errors import SandboxError, SandboxUnavailable
from sandbox.local.provider import LocalSandbox
from sandbox.supervision import supervisor
from tests.sandbox.attacks.bench import carrying
from tests.sandbox.conftest import until
from tests.sandbox.uncontained import WithSignals


def test_whatever_is_not_promised_has_a_note(tmp_path: Path) -> None:
    promises = WithSignals(sys.executable, tmp_path).promises()
    assert not promises.contained and not any(promises.by_name().values())
    notes = "\n".join(promises.notes)
    told = ("local is not containment", "reach the network", "own user id", "freezing is by signals", "not enforced")
    assert [words for words in (*told, "not held back", "outlive") if words not in notes] == []


def test_an_interpreter_that_is_not_there_makes_it_unavailable(tmp_path: Path) -> None:
    with pytest.raises(SandboxUnavailable, match="missing/python") as caught:
        LocalSandbox(tmp_path / "missing/python", tmp_path / "scratch").promises()
    assert "--python" in caught.value.hint


def test_a_command_that_cannot_be_executed_is_a_sandbox_error(local: LocalSandbox, tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="nothing-here cannot be executed"):
        local.start(Command(argv=("/nothing-here",), cwd=tmp_path, role="worker"))
    assert list((tmp_path / "scratch" / "records").iterdir()) == []


def test_scratch_is_closed_to_others(local: LocalSandbox, tmp_path: Path) -> None:
    local.promises()
    assert (tmp_path / "scratch").stat().st_mode & 0o066 == 0
    assert (tmp_path / "scratch" / "records").stat().st_mode & 0o077 == 0


def test_no_privilege_survives_and_priority_cannot_be_raised(local: LocalSandbox, guests_of: Any) -> None:
    code = """
try: os.nice(-5); raised = "yes"
except PermissionError: raised = "no"
lines = open("/proc/self/status").read().splitlines()
channel.send({"raised": raised, **dict(line.split(":\\t", 1) for line in lines if ":\\t" in line)})
channel.receive()
"""
    told = guests_of(local)(code).channel.receive(20.0)
    read_search = 1 << 2
    assert int(told["CapEff"], 16) & ~read_search == 0
    assert (told["NoNewPrivs"], told["raised"]) == ("1", "no")


@pytest.mark.parametrize("provider", [LocalSandbox, WithSignals])
def test_a_killed_supervisor_takes_everything_along(
    guests_of: Any, tmp_path: Path, provider: type[LocalSandbox]
) -> None:
    code = "import time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(600)\nchannel.send({}); channel.receive()"
    mark = f"MARK={secrets.token_hex(8)}"
    process = guests_of(provider(sys.executable, tmp_path))(code, env=dict([mark.split("=")]))
    process.channel.receive(20.0)
    assert len(carrying(mark)) == 2
    os.kill(process.pid, signal.SIGKILL)
    assert until(process.poll).reason == "supervisor killed"
    until(lambda: carrying(mark) == [])


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


def test_a_damaged_record_does_not_stop_reaping_nor_does_a_folder_that_is_not_there(
    local: LocalSandbox, tmp_path: Path
) -> None:
    records = tmp_path / "scratch" / "records"
    assert local.reap() == []
    records.mkdir(parents=True)
    (records / "half.json").write_text('{"role": "wor')
    assert local.reap() == []
    assert list(records.iterdir()) == []
