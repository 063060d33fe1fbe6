"""What every provider promises holds against a command that tries to get out, to use up the machine, or to stay.

That the checks would notice is the business of `test_guards.py`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.contract import Sandbox
from sandbox.docker.engine import Engine
from sandbox.docker.provider import DockerSandbox
from sandbox.local.provider import LocalSandbox
from tests.files import folder_open_to_all
from tests.sandbox.attacks import bounds
from tests.sandbox.attacks.bench import Bench, Check, carrying
from tests.sandbox.attacks.suite import ALL, HELD_TO, PROVIDERS, promised, tried
from tests.sandbox.conftest import PROVIDERS as MADE
from tests.sandbox.conftest import PYTHON, available

ROOT = Path(__file__).resolve().parents[2]
Until = Callable[..., Any]


@pytest.fixture(scope="module")
def bench(provided: tuple[Sandbox, str]) -> Iterator[Bench]:
    with folder_open_to_all() as folder, Bench(*provided, folder) as made:
        yield made


@pytest.mark.parametrize("check", ALL, ids=lambda check: check.name)
@pytest.mark.guard("attacks")
def test_what_is_promised_holds(check: Check, bench: Bench) -> None:
    """What is not is not tried: on this machine nothing would stop it. One that cannot be tried (NotTried) fails."""
    assert not promised(bench.sandbox, check.promise) or tried(check, bench) is None


def test_every_promise_is_in_the_table_and_has_a_check() -> None:
    assert set(HELD_TO) == {check.promise for check in ALL}


def test_no_two_checks_claim_the_same() -> None:
    assert len({check.name for check in ALL}) == len(ALL)


def test_the_attacks_leave_nothing_behind(open_folder: Path) -> None:
    scratch, python = open_folder / "scratch", PYTHON
    sandbox = LocalSandbox(python, scratch)
    with Bench(sandbox, python, open_folder) as bench:
        for check in bounds.CHECKS:
            if promised(sandbox, check.promise):
                tried(check, bench)
    assert [path.name for path in open_folder.iterdir()] == ["scratch"]
    assert [path.name for path in scratch.rglob("*")] == ["records"]


def test_the_users_proxies_are_not_passed_on(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's SDK would put them into the environment of process 1, where the command can read them."""
    proxy = {"httpProxy": "http://user:the-password@proxy:3128"}
    (open_folder / "config.json").write_text(json.dumps({"proxies": {"default": proxy}}))
    monkeypatch.setenv("DOCKER_CONFIG", str(open_folder))
    sandbox = available(DockerSandbox(sys.executable, open_folder / "scratch"))
    with Bench(sandbox, sys.executable, open_folder) as bench:
        engine, role = Engine(), bench.guest.name
        (mine,) = (found for found, labels in engine.labelled() if labels["ratchet.role"] == role)
        assert "the-password" not in json.dumps(engine.inspect(mine))
        assert bench.ask("search_processes", token="the-password") == []
        assert bench.ask("search_processes", token="HOSTNAME") == []  # process 1 is closed to the command


WITH_A_KEYRING = """
import ctypes, sys
from pathlib import Path
from tests.sandbox.attacks import neighbours
from tests.sandbox.attacks.bench import Bench
from sandbox.supervision import spawner
from tests.sandbox.attacks.suite import tried
from tests.sandbox.attacks.weaken import KEEPS_THE_KEYRING
from tests.sandbox.attacks.inside.attack_reach import KEYCTL
from tests.sandbox.conftest import PROVIDERS
if ctypes.CDLL(None).syscall(KEYCTL, 1, None) < 0:
    sys.exit("no keyring can be had here")
sandbox, python = PROVIDERS[sys.argv[1]](Path(sys.argv[2], "scratch"))
if sys.argv[3:]:
    spawner._SCRIPT = KEEPS_THE_KEYRING
with Bench(sandbox, python, Path(sys.argv[2])) as bench:
    print(tried(neighbours.keys, bench))
"""


def seen_of_keyrings(folder: Path, name: str, *without: str) -> str:
    """By a command of an agent whose session has a keyring, as after every login."""
    MADE[name](folder / "unused")
    ran = subprocess.run(
        [sys.executable, "-c", WITH_A_KEYRING, name, str(folder), *without], cwd=ROOT, capture_output=True, text=True
    )
    if "no keyring can be had" in ran.stderr:
        pytest.skip("no keyring can be had here")
    return ran.stdout.strip() or ran.stderr


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_keyring_of_the_agents_session_is_out_of_reach(name: str, open_folder: Path) -> None:
    assert seen_of_keyrings(open_folder, name) == "None"


def test_a_keyring_that_is_left_to_a_command_is_seen(open_folder: Path) -> None:
    assert seen_of_keyrings(open_folder, "bwrap", "keyring") == "its session has the agent's keyring"


AGENT = """
import sys
from pathlib import Path
from tests.sandbox.attacks.bench import Bench
from tests.sandbox.conftest import PROVIDERS
sandbox, python = PROVIDERS[sys.argv[1]](Path(sys.argv[2], "scratch"))
guest = Bench(sandbox, python, Path(sys.argv[2])).start()
guest.ask("leave_children")
print(guest.mark, guest.process.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("name", PROVIDERS)
@pytest.mark.parametrize("killed", ["the agent", "the agent and what watches for it"])
@pytest.mark.guard("killed agent")
def test_after_a_killed_agent_nothing_is_left(name: str, killed: str, open_folder: Path, until: Until) -> None:
    MADE[name](open_folder / "unused")
    agent = subprocess.Popen(
        [sys.executable, "-c", AGENT, name, str(open_folder)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with agent:
        assert agent.stdout is not None
        mark, watcher = agent.stdout.readline().split()
        assert len(carrying(mark)) >= 2
        if killed != "the agent":
            os.kill(int(watcher), signal.SIGKILL)
        agent.kill()
    if killed == "the agent":
        until(lambda: carrying(mark) == [])
    scratch = open_folder / "scratch"
    MADE[name](scratch)[0].reap()
    assert carrying(mark) == []
    until(lambda: [path.name for path in scratch.rglob("*") if path.name not in ("init.py", "records")] == [])
    if name == "docker":
        assert mark.partition("=")[2] not in [labels["ratchet.role"] for _, labels in Engine().labelled()]
