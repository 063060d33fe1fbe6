"""What bubblewrap cannot have is given up while its promises are settled, and never afterwards."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from sandbox.bwrap.provider import BwrapSandbox
from sandbox.contract import Command, Limits
from sandbox.errors import SandboxUnavailable, Unusable
from sandbox.supervision import control_groups, spawner
from sandbox.supervision.control_groups import EVERY_KIND, ControlGroups, Kind
from sandbox.supervision.supervisor import Order
from tests.sandbox.conftest import available

TRUE = Command(("/bin/true",), Path("/"), "test", limits=Limits())


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> set[Kind]:
    """The control groups that cannot be made now; those that can may be switched on and off by the test."""
    kinds: set[Kind] = set()
    make = control_groups.make

    def or_fail(name: str, command: Command, wanted: frozenset[Kind]) -> ControlGroups:
        for kind in sorted(kinds & wanted):
            raise Unusable(kind, "it cannot be made")
        return make(name, command, wanted)

    monkeypatch.setattr(control_groups, "make", or_fail)
    return kinds


@pytest.fixture
def sandbox(open_folder: Path) -> BwrapSandbox:
    available(BwrapSandbox(sys.executable, open_folder / "first"))
    return BwrapSandbox(sys.executable, open_folder / "scratch")


def test_what_cannot_be_made_while_settling_is_given_up_and_told(failing: set[Kind], sandbox: BwrapSandbox) -> None:
    failing |= {"cpusets", "limits"}
    promises = sandbox.promises()
    assert not promises.enforced_cpus and not promises.kernel_limits
    assert any("not enforced" in note for note in promises.notes)
    assert sandbox.start(TRUE).stop() is not None


def test_what_cannot_be_made_afterwards_is_raised_and_the_promise_stands(
    failing: set[Kind], sandbox: BwrapSandbox
) -> None:
    before = sandbox.promises()
    if not before.kernel_limits:
        pytest.skip("no control groups can be had here")
    failing.add("limits")
    with pytest.raises(Unusable, match="cannot be made"):
        sandbox.start(TRUE)
    failing.clear()
    assert sandbox.promises() == before
    assert sandbox.start(TRUE).stop() is not None
    assert sandbox._kinds == EVERY_KIND


def test_groups_that_cannot_be_joined_are_given_up_one_by_one(
    sandbox: BwrapSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, joined = spawner.start, list[int]()

    def or_fail(order: Order, log: Path) -> object:
        joined.append(len(order.join))
        if order.join:
            raise Unusable("group", "it cannot be joined")
        return start(order, log)

    monkeypatch.setattr(spawner, "start", or_fail)
    promises = sandbox.promises()
    assert not promises.enforced_cpus and not promises.kernel_limits
    assert joined == sorted(joined, reverse=True) and joined[-1] == 0
    assert len([note for note in promises.notes if "by signals" in note]) == 1


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        ("bwrap: setting up uid map: Permission denied", "namespaces cannot be made here", "apparmor_restrict"),
        ("bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted", "namespaces cannot be", "user_namespaces"),
        ("bwrap: Unknown option --disable-userns", "this bubblewrap is too old", "0.8"),
        ("bwrap: Can't find source path /nowhere: No such file", "does not run in the sandbox", "--mount"),
        ("python3: error while loading shared libraries", "does not run in the sandbox", "--python"),
    ],
)
def test_bubblewraps_last_words_are_understood(
    words: str, message: str, hint: str, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = open_folder / "bwrap"
    program.write_text(f'#!/bin/sh\necho "{words}" >&2\nexit 1\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{open_folder}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(SandboxUnavailable) as caught:
        BwrapSandbox(sys.executable, open_folder / "scratch").promises()
    assert message in caught.value.message and words in caught.value.message
    assert hint in caught.value.hint
    assert list((open_folder / "scratch" / "records").iterdir()) == []
