"""What only the local provider does: its plan, its promises, its channel, its folders and its errors."""

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
from sandbox.errors import SandboxError, SandboxUnavailable, Unusable
from sandbox.local.plan import Feature, Plan
from sandbox.local.provider import LocalSandbox
from sandbox.supervision import supervisor
from sandbox.supervision.process import SupervisedProcess

Until = Callable[..., Any]
EVERYTHING: frozenset[Feature] = frozenset(("namespaces", "groups", "cpusets", "limits", "users"))


@pytest.fixture
def local(tmp_path: Path) -> LocalSandbox:
    return LocalSandbox(sys.executable, tmp_path / "scratch")


def test_it_never_calls_itself_containment(local: LocalSandbox) -> None:
    promises = local.promises()
    assert not promises.contained
    assert "local is not containment" in promises.notes[0]


def test_whatever_is_not_promised_has_a_note(tmp_path: Path) -> None:
    promises = LocalSandbox(sys.executable, tmp_path, without=EVERYTHING).promises()
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
    process = guests_of(sandbox)("channel.send({'ok': True})")
    assert process.channel.receive(20.0) == {"ok": True}


def test_nothing_is_left_in_scratch_after_a_stop(local: LocalSandbox, guests_of: Any, tmp_path: Path) -> None:
    process: SupervisedProcess = guests_of(local)("channel.receive()")
    groups = process._filed.record.groups
    assert all(group.is_dir() for group in groups)
    process.stop()
    assert sorted(path.name for path in (tmp_path / "scratch").rglob("*")) == ["records"]
    assert not any(group.exists() for group in groups)


def test_scratch_is_closed_to_others(local: LocalSandbox, tmp_path: Path) -> None:
    local.promises()
    assert (tmp_path / "scratch").stat().st_mode & 0o066 == 0
    assert (tmp_path / "scratch" / "records").stat().st_mode & 0o077 == 0


def test_a_command_sees_only_its_own_processes_in_a_pid_namespace(local: LocalSandbox, guests_of: Any) -> None:
    process = guests_of(local)("channel.send({'seen': [n for n in os.listdir('/proc') if n.isdigit()]})")
    told = process.channel.receive(20.0)
    if local._settled().pid_namespace:
        assert told["seen"] == ["1", "2"]
    else:
        assert str(os.getpid()) in told["seen"]


def test_control_groups_are_out_of_reach_of_a_command(local: LocalSandbox, guests_of: Any) -> None:
    if not local._settled().pid_namespace:
        pytest.skip("this kernel gives no mount namespace")
    process = guests_of(local)("channel.send({'seen': os.listdir('/sys/fs/cgroup')})")
    assert process.channel.receive(20.0) == {"seen": []}


def test_no_privilege_survives(local: LocalSandbox, guests_of: Any) -> None:
    code = """
lines = open("/proc/self/status").read().splitlines()
channel.send(dict(line.split(":\\t", 1) for line in lines if ":\\t" in line))
"""
    told = guests_of(local)(code).channel.receive(20.0)
    read_search = 1 << 2
    assert int(told["CapEff"], 16) & ~read_search == 0
    assert told["NoNewPrivs"] == "1"


def test_priority_cannot_be_raised(local: LocalSandbox, guests_of: Any) -> None:
    code = "try: os.nice(-5); done = True\nexcept PermissionError: done = False\nchannel.send({'raised': done})"
    assert guests_of(local)(code).channel.receive(20.0) == {"raised": False}


@pytest.mark.parametrize("without", [frozenset(), EVERYTHING], ids=["all", "nothing"])
def test_a_killed_supervisor_takes_everything_along(
    guests_of: Any, tmp_path: Path, until: Until, marked: Any, without: frozenset[Feature]
) -> None:
    code = "import time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(600)\nchannel.send({}); channel.receive()"
    mark = secrets.token_hex(8)
    process = guests_of(LocalSandbox(sys.executable, tmp_path, without=without))(code, env={"MARK": mark})
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
    order = b'{"host_pid": 1, "argv": [], "cwd": "/", "env": {}}'
    command = [sys.executable, "-I", "-S", supervisor.__file__, "1"]
    done = subprocess.run(command, input=order, cwd="/", capture_output=True)
    assert (done.returncode, done.stderr) == (1, b"")  # it is not process 1 that started it


def test_a_supervisor_that_breaks_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sandbox.supervision.spawner._SCRIPT", tmp_path / "missing.py")
    with pytest.raises(SandboxError, match=r"missing\.py"):
        LocalSandbox(sys.executable, tmp_path / "scratch").promises()


def test_a_plan_gives_up_one_thing_at_a_time() -> None:
    plan: Plan | None = Plan("direct")
    seen = []
    for stage in ("namespaces", "group", "group", "group", "exec"):
        assert plan is not None
        plan = plan.after(Unusable(stage, f"no {stage}"))
        assert plan is not None
        seen.append((plan.namespaces, plan.limits, plan.cpusets, plan.groups, plan.users))
    assert seen == [
        ("none", True, True, True, True),
        ("none", False, True, True, True),
        ("none", False, False, True, True),
        ("none", False, False, False, True),
        ("none", False, False, False, False),
    ]
    assert plan is not None
    assert plan.after(Unusable("exec", "no such file")) is None


def test_without_separate_users_a_user_namespace_comes_before_none() -> None:
    plan = Plan("direct", users=False).after(Unusable("namespaces", "not permitted"))
    assert plan is not None
    assert plan.namespaces == "user"
    following = plan.after(Unusable("namespaces", "not permitted"))
    assert following is not None
    assert (following.namespaces, following.promises().no_network) == ("none", False)
