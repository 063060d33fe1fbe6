"""The right to read hardware counters: nobody's where the machine is closed, but a profiling command's, and no more."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sandbox import counters
from sandbox.contract import Command, Sandbox
from sandbox.docker import container, provider
from sandbox.docker.container import Outside
from sandbox.docker.engine import Engine
from sandbox.errors import SandboxError, Unusable
from sandbox.local.provider import LocalSandbox
from tests.evals.arena import Arena
from tests.sandbox.conftest import Run
from tools.judging.measure import ComparisonRequest

PERFMON = 1 << 38
TELL = """
lines = open("/proc/self/status").read().splitlines()
found = dict(line.split(":", 1) for line in lines)
channel.send({"rights": {name: int(found[name], 16) for name in found if name.startswith("Cap")},
              "ids": [*os.getresuid(), *os.getresgid()], "new": found["NoNewPrivs"].strip()})
"""


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "open_to_all", lambda: False)


def told(process: Any) -> Any:
    return process.channel.receive(20.0)


@pytest.mark.parametrize("to_all", [True, False])
def test_who_does_not_ask_or_asks_for_what_is_open_to_all_is_granted_nothing(
    to_all: bool, run: Run, monkeypatch: pytest.MonkeyPatch, sandbox_provider: Sandbox
) -> None:
    monkeypatch.setattr(counters, "open_to_all", lambda: to_all)
    rights = told(run(TELL, counters=to_all))["rights"]
    assert not sandbox_provider.promises().contained or set(rights.values()) == {0}


def reason_to_refuse(provider: str, *, root: bool, engine: str) -> str | None:
    """Why this provider cannot grant it, in its words; None when it has to."""
    if provider == "local":
        return "local grants no rights"
    if provider == "bwrap":
        return None if root else "only root can grant the right to read them"
    # engines before 23 know no capability of that name (moby's list of them is a library's, which learnt it then)
    old = int(engine.partition(".")[0]) < 23
    return f"docker {engine} cannot grant CAP_PERFMON" if old else None


def test_who_asks_gets_this_right_alone_or_is_told_why_not(run: Run, closed: None, sandbox_provider: Sandbox) -> None:
    name = sandbox_provider.name
    version = Engine().version if name == "docker" else ""
    reason = reason_to_refuse(name, root=os.geteuid() == 0, engine=version)
    if reason is not None:
        with pytest.raises(Unusable) as refused:
            run(TELL, counters=True)
        assert refused.value.stage == "counters" and "perf_event_paranoid" in refused.value.hint
        assert refused.value.message == f"hardware counters are closed to this command: {reason}"
        return
    found = told(run(TELL, counters=True))
    assert set(found["rights"].values()) == {PERFMON}
    assert found["new"] == "1" and 0 not in found["ids"]


@pytest.mark.parametrize(
    ("says", "granting", "raised"),
    [
        ('invalid CapAdd: unknown capability: "CAP_PERFMON"', True, Unusable),
        ('invalid CapAdd: unknown capability: "CAP_PERFMON"', False, SandboxError),
        ("no such image", True, SandboxError),
    ],
)
def test_an_engine_that_knows_no_such_right_is_told_from_one_that_fails(
    says: str, granting: bool, raised: type[Exception]
) -> None:
    """What an engine before 23 says of a capability that it does not know, and of anything else that is wrong."""

    def create(*given: Any, **named: Any) -> str:
        raise SandboxError(f"the engine cannot create a container: {says}")

    engine: Any = SimpleNamespace(version="20.10.24", create=create)
    command = Command(("/bin/true",), Path("/"), "profiler", counters=True)
    with pytest.raises(SandboxError) as caught:
        provider._create(engine, "name", "image", command, outside(counters=granting))
    assert type(caught.value) is raised
    assert (raised is Unusable) == ("docker 20.10.24 cannot grant CAP_PERFMON" in caught.value.message)


def outside(**given: Any) -> Outside:
    return Outside(uid=1000, gid=1000, channel=Path("/c/channel"), init=("/python", "/init.py"), view=(), **given)


@pytest.mark.slow
def test_no_judged_worker_is_ever_given_it(tmp_path: Path, closed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command of a check and of a comparison, as the referee starts them."""
    started: list[Command] = []
    start = LocalSandbox.start

    def recorded(self: LocalSandbox, command: Command) -> Any:
        started.append(command)
        return start(self, command)

    monkeypatch.setattr(LocalSandbox, "start", recorded)
    sandbox = LocalSandbox(sys.executable, tmp_path / "sandbox", owned=(tmp_path,))
    arena = Arena.open(tmp_path, sys.executable, sandbox=sandbox)
    with contextlib.closing(arena.referee):
        pristine = arena.incumbent
        arena.referee.clock.compare(
            ComparisonRequest("counters", pristine, {"candidate": pristine}, enough=lambda found: True)
        )
    assert {command.role for command in started} >= {"worker", "reference"}
    assert not any(command.counters for command in started)


def test_a_container_starts_as_root_only_to_grant_it() -> None:
    command = Command(("/bin/true",), Path("/"), "profiler", counters=True)
    assert container.other_options(command, outside())["user"] == "1000:1000"
    assert "cap_add" not in container.host_options(command, outside())
    granting = outside(counters=True)
    assert container.other_options(command, granting)["user"] == "0:0"
    assert counters.CAPABILITY in container.host_options(command, granting)["cap_add"]
    argv = container.argv(command, granting)
    become = [
        "/usr/bin/setpriv",
        "--reuid=1000",
        "--regid=1000",
        "--clear-groups",
        *(f"--{kind}=-all,+perfmon" for kind in ("inh-caps", "bounding-set", "ambient-caps")),
        "--no-new-privs",
        "--",
    ]
    at = argv.index("/usr/bin/setpriv")
    assert argv[at : at + len(become)] == become and at < argv.index("/usr/bin/env")


@pytest.mark.parametrize(("setting", "is_open"), [("-1", True), ("2", True), ("3", False), ("4", False), ("", False)])
def test_the_kernels_setting_says_who_may(
    setting: str, is_open: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "paranoid").write_text(setting)
    monkeypatch.setattr(counters, "_SETTING", tmp_path / "paranoid")
    assert counters.open_to_all() == is_open
