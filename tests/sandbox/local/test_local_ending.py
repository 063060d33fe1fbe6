"""Nothing survives an agent that is killed, and what is left on disk is cleared away by the next one."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.kernel import process_tree
from sandbox.local.provider import LocalSandbox

ROOT = Path(__file__).resolve().parents[3]
# an agent with one command running, whose child left the session and lost its parent
AGENT = """
import sys, threading, time
from pathlib import Path
sys.path.insert(0, {root!r})
from sandbox.contract import Command
from sandbox.local.provider import LocalSandbox
from tests.sandbox.uncontained import WithSignals
code = '''
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
os.wait()
print("ready", file=open("ready", "w"))
time.sleep(600)
'''
sandbox = {provider}(sys.executable, Path({scratch!r}))
command = Command(argv=(sys.executable, "-c", code), cwd=Path({folder!r}), role="worker", env={{"MARK": {mark!r}}},
                  writable=(Path({folder!r}),))
started = []
thread = threading.Thread(target=lambda: started.append(sandbox.start(command)))
thread.start()
thread.join()
print(started[0].pid, flush=True)
time.sleep(600)
"""


class Agent:
    """A running agent, and what its command carries in its environment."""

    def __init__(self, scratch: Path, folder: Path, provider: str) -> None:
        value = secrets.token_hex(8)
        self.mark = f"MARK={value}"
        code = AGENT.format(root=str(ROOT), scratch=str(scratch), folder=str(folder), mark=value, provider=provider)
        self.popen = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        assert self.popen.stdout is not None
        with self.popen.stdout as told:
            self.supervisor = int(told.readline())

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()


@pytest.fixture(params=["LocalSandbox", "WithSignals"])
def agent(request: pytest.FixtureRequest, tmp_path: Path, until: Callable[..., Any]) -> Iterator[Agent]:
    folder = tmp_path / "home"
    folder.mkdir()
    running = Agent(tmp_path / "scratch", folder, request.param)
    until((folder / "ready").exists)
    yield running
    running.kill()


def recorded(tmp_path: Path) -> dict[str, Any]:
    (record,) = (tmp_path / "scratch" / "records").glob("*.json")
    return json.loads(record.read_text())


def test_reap_ends_what_a_stuck_supervisor_could_not(agent: Agent, tmp_path: Path, marked: Any) -> None:
    left, reaper = recorded(tmp_path), LocalSandbox(sys.executable, tmp_path / "scratch")
    os.kill(agent.supervisor, signal.SIGSTOP)
    assert reaper.reap() == []  # its agent is alive
    agent.kill()
    assert len(marked(agent.mark)) == 2
    (told,) = reaper.reap()
    assert told.startswith("worker: ")
    assert marked(agent.mark) == []
    assert process_tree.stat(agent.supervisor) is None or not process_tree.stat(agent.supervisor).alive  # type: ignore[union-attr]
    assert not any(Path(group).exists() for group in left["groups"])
    assert reaper.reap() == []


def test_an_agent_that_ends_without_stopping_takes_its_commands_along(
    agent: Agent, tmp_path: Path, until: Callable[..., Any], marked: Any
) -> None:
    record = recorded(tmp_path)
    left = [Path(record["channel"]).parent, *map(Path, record["groups"])]
    agent.popen.send_signal(signal.SIGINT)  # an exception in its main thread, and then an ordinary exit
    agent.popen.wait()
    until(lambda: marked(agent.mark) == [])
    until(lambda: not any(path.exists() for path in left))


def test_a_damaged_record_does_not_stop_reaping_nor_does_a_folder_that_is_not_there(tmp_path: Path) -> None:
    sandbox, records = LocalSandbox(sys.executable, tmp_path / "scratch"), tmp_path / "scratch" / "records"
    assert sandbox.reap() == []
    records.mkdir(parents=True)
    (records / "half.json").write_text('{"role": "wor')
    assert sandbox.reap() == []
    assert list(records.iterdir()) == []
