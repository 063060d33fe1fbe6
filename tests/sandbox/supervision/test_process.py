"""The channel of a command is its own, and it is cleared away once, whatever interrupts that."""

from __future__ import annotations

import itertools
import socket
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sandbox.contract import Command, ProcessEnded, WouldNotFreeze
from sandbox.kernel import freezer, process_tree
from sandbox.local.provider import LocalSandbox
from sandbox.supervision.process import SupervisedProcess
from tests.sandbox.uncontained import WithSignals

SLEEPS = "import time; time.sleep(600)"


class Interrupted:
    """The first call is interrupted, as by Ctrl-C; later ones are not."""

    def __init__(self, call: Any, *, after: bool) -> None:
        self.call, self.after, self.count = call, after, 0

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self.count += 1
        if self.count > 1:
            return self.call(*arguments, **named)
        if self.after:
            self.call(*arguments, **named)
        raise KeyboardInterrupt


@pytest.fixture
def process(local: LocalSandbox, tmp_path: Path) -> SupervisedProcess:
    return local.start(Command(argv=(sys.executable, "-c", SLEEPS), cwd=tmp_path, role="worker"))


@pytest.mark.parametrize("after", [True, False])
def test_who_is_interrupted_while_waiting_for_the_supervisor_can_stop_it_again(
    after: bool, process: SupervisedProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    popen = process._supervisor._popen
    monkeypatch.setattr(popen, "wait", Interrupted(popen.wait, after=after))
    with pytest.raises(KeyboardInterrupt):
        process.stop()
    ended = process.stop()
    assert ended.reason == "stopped" and process.poll() == ended == process.wait(0.0)
    assert [*(tmp_path / "scratch" / "records").iterdir()] == []
    process._supervisor.dismiss(5.0)


def test_what_is_left_is_cleared_away_though_its_groups_cannot_be(
    process: SupervisedProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = process._groups.close
    monkeypatch.setattr(type(process._groups), "close", Interrupted(lambda: close(), after=True))
    with pytest.raises(KeyboardInterrupt):
        process.stop()
    assert process._listener.fileno() < 0
    assert process.stop().reason == "stopped"
    process._record.forget()


def test_what_it_ran_before_it_stopped_is_not_held_against_it_though_the_kernel_counts_it_late(
    process: SupervisedProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, further = 3_000_000, 10_000_000
    ran = iter([{1: 0}, {1: late}, {1: late}, {1: late}, {1: 0}, {1: 0}, {1: further}])
    monkeypatch.setattr(process_tree, "ran_ns", lambda pids: next(ran))
    process.freeze()
    process.thaw()
    process.freeze()
    with pytest.raises(WouldNotFreeze, match=r"ran for 10\.0 ms while it was stopped"):
        process.thaw()
    process.stop()


def test_what_goes_on_running_is_not_frozen(process: SupervisedProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freezer, "PATIENCE_S", 0.05)
    ran = itertools.count()
    monkeypatch.setattr(process_tree, "ran_ns", lambda pids: {1: next(ran)})
    with pytest.raises(WouldNotFreeze, match="it goes on though it was stopped"):
        process.freeze()
    process.stop()


def test_a_stranger_on_the_channel_is_turned_away(local: LocalSandbox, guests_of: Any) -> None:
    process: SupervisedProcess = guests_of(local)(SLEEPS, connects=False)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stranger:
        stranger.connect(process._record.channel)
        stranger.settimeout(20.0)
        process._connect_timeout_s = 0.2
        with pytest.raises(TimeoutError, match="guest did not connect"):
            _ = process.channel
        assert stranger.recv(1) == b""
    assert process.stop().reason == "stopped"
    with pytest.raises(ProcessEnded):
        _ = process.channel


def test_what_has_ended_before_anybody_accepts_it_is_heard(guests_of: Any, tmp_path: Path) -> None:
    """Here it still waits to be accepted; in the contract's test its end has been told already."""
    process = guests_of(WithSignals(sys.executable, tmp_path / "scratch"))("channel.send({'ok': True})")
    accept, waiting = process._waiting, lambda timeout_s: (time.sleep(1.0), accept(timeout_s))[1]
    process._waiting = waiting
    assert process.channel.receive(20.0) == {"ok": True}


def test_the_socket_lies_where_its_path_is_short_enough_and_is_gone_once_it_is_connected(
    open_folder: Path, guests_of: Any
) -> None:
    for folder in (open_folder / "scratch", open_folder / ("long" * 30)):
        process: SupervisedProcess = guests_of(LocalSandbox(sys.executable, folder))("channel.receive()")
        path = Path(process._record.channel)
        assert path.is_socket() and path.is_relative_to(folder) == (folder.name == "scratch")
        _ = process.channel
        assert not path.exists()
