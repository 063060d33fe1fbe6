"""The right to read hardware counters: nobody's where the machine is closed, but a profiling command's, and no more."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from sandbox.contract import Command, Sandbox
from sandbox.docker import container
from sandbox.docker.container import Outside
from sandbox.errors import Unusable
from sandbox.kernel import counters
from tests.sandbox.conftest import Run

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


def test_whoever_does_not_ask_gets_nothing(run: Run, closed: None, sandbox_provider: Sandbox) -> None:
    if sandbox_provider.promises().contained:
        assert set(told(run(TELL))["rights"].values()) == {0}


def test_who_asks_gets_this_right_alone_or_is_told_why_not(run: Run, closed: None, sandbox_provider: Sandbox) -> None:
    try:
        found = told(run(TELL, counters=True))
    except Unusable as refused:
        assert refused.stage == "counters" and "perf_event_paranoid" in refused.hint
        assert sandbox_provider.name != "bwrap" or os.geteuid() != 0
        return
    assert sandbox_provider.name != "local"
    assert set(found["rights"].values()) == {PERFMON}
    assert found["new"] == "1" and 0 not in found["ids"]


def test_where_they_are_open_to_all_nothing_is_granted(
    run: Run, monkeypatch: pytest.MonkeyPatch, sandbox_provider: Sandbox
) -> None:
    monkeypatch.setattr(counters, "open_to_all", lambda: True)
    found = told(run(TELL, counters=True))
    if sandbox_provider.promises().contained:
        assert set(found["rights"].values()) == {0}


def test_a_container_starts_as_root_only_to_grant_it() -> None:
    command = Command(("/bin/true",), Path("/"), "profiler", counters=True)
    outside = Outside(uid=1000, gid=1000, channel=Path("/c/channel"), init=("/python", "/init.py"), view=())
    assert container.other_options(command, outside)["user"] == "1000:1000"
    assert "cap_add" not in container.host_options(command, outside)
    granting = Outside(uid=1000, gid=1000, channel=Path("/c/channel"), init=("/python", "/init.py"), view=(),
                       counters=True)  # fmt: skip
    assert container.other_options(command, granting)["user"] == "0:0"
    assert counters.CAPABILITY in container.host_options(command, granting)["cap_add"]
    argv = container.argv(command, granting)
    assert argv.index("--reuid=1000") < argv.index("/usr/bin/env") and "--no-new-privs" in argv


@pytest.mark.parametrize(("setting", "is_open"), [("-1", True), ("2", True), ("3", False), ("4", False), ("", False)])
def test_the_kernels_setting_says_who_may(
    setting: str, is_open: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "paranoid").write_text(setting)
    monkeypatch.setattr(counters, "_SETTING", tmp_path / "paranoid")
    assert counters.open_to_all() == is_open
