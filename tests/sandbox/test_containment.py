"""What every provider promises holds against a command that tries to get out, to use up the machine, or to stay.

That the checks would notice is the business of `test_guards.py`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.contract import Sandbox
from sandbox.docker.engine import Engine
from sandbox.docker.provider import DockerSandbox
from sandbox.kernel import process_tree
from sandbox.local.provider import LocalSandbox
from tests.files import folder_open_to_all
from tests.sandbox.attacks import bounds
from tests.sandbox.attacks.bench import Bench, Check, carrying
from tests.sandbox.attacks.suite import ALL, HELD_TO, PROVIDERS, promised, tried
from tests.sandbox.conftest import PROVIDERS as MADE
from tests.sandbox.conftest import PYTHON, available, until

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def bench(provided: tuple[Sandbox, str]) -> Iterator[Bench]:
    with folder_open_to_all() as folder, Bench(*provided, folder) as made:
        yield made


@pytest.mark.parametrize("check", ALL, ids=lambda check: check.name)
@pytest.mark.guard("attacks")
def test_what_is_promised_holds(check: Check, bench: Bench) -> None:
    """What is not is not tried: on this machine nothing would stop it. One that cannot be tried (NotTried) fails."""
    assert not promised(bench.sandbox, check.promise) or tried(check, bench) is None


def test_every_promise_is_in_the_table_and_has_a_check_and_no_two_claim_the_same() -> None:
    assert set(HELD_TO) == {check.promise for check in ALL}
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
        (mine,) = with_role(bench.guest.name)
        assert "the-password" not in json.dumps(Engine().inspect(mine))
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


@pytest.mark.parametrize(
    ("name", "without", "seen"),
    [*((name, [], "None") for name in PROVIDERS), ("bwrap", ["keyring"], "its session has the agent's keyring")],
)
def test_a_keyring_of_the_agents_session_is_out_of_reach_or_seen(
    name: str, without: list[str], seen: str, open_folder: Path
) -> None:
    """By a command of an agent whose session has a keyring, as after every login."""
    MADE[name](open_folder / "unused")
    argv = [sys.executable, "-c", WITH_A_KEYRING, name, str(open_folder), *without]
    ran = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True)
    if "no keyring can be had" in ran.stderr:
        pytest.skip("no keyring can be had here")
    assert (ran.stdout.strip() or ran.stderr) == seen


ENDS = [
    *("killed", "killed with its watcher"),
    *(pytest.param(how, marks=pytest.mark.slow) for how in ("killed, its watcher stuck", "interrupted")),
]
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


def with_role(role: str) -> list[str]:
    """The containers of one guest."""
    return [found for found, labels in Engine().labelled() if labels["ratchet.role"] == role]


def of_this_agent(reaped: list[str], containers: list[str]) -> list[str]:
    """Of what was ended: an engine is shared, and a test beside this one may have killed an agent, too."""
    return [each for each in reaped if not each.startswith("container ") or each.split()[1] in containers]


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.guard("killed agent")
def test_after_a_killed_agent_nothing_is_left(name: str, ends: str, open_folder: Path) -> None:
    MADE[name](open_folder / "unused")
    scratch, piped = open_folder / "scratch", {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", AGENT, name, str(open_folder)], cwd=ROOT, text=True, **piped) as agent:
        mark, watcher = agent.stdout.readline().split()
        role = mark.partition("=")[2]
        assert len(carrying(mark)) >= 2
        reaper = MADE[name](scratch)[0]
        containers = [found[:12] for found in with_role(role)] if name == "docker" else []
        assert of_this_agent(reaper.reap(), containers) == []  # the agent is alive
        records = [json.loads(record.read_text()) for record in (scratch / "records").glob("*.json")]
        if "watcher" in ends:
            os.kill(int(watcher), signal.SIGSTOP if "stuck" in ends else signal.SIGKILL)
        agent.send_signal(signal.SIGINT if ends == "interrupted" else signal.SIGKILL)
    if "watcher" not in ends:
        until(lambda: carrying(mark) == [])
    told = reaper.reap()
    assert carrying(mark) == [] and of_this_agent(reaper.reap(), containers) == []
    if "stuck" in ends:
        assert any(role in each or each.split()[1] in containers for each in told)
        left = process_tree.stat(int(watcher))
        assert left is None or not left.alive
    until(lambda: [path.name for path in scratch.rglob("*") if path.name not in ("init.py", "records")] == [])
    until(lambda: not any(Path(group).exists() for record in records for group in record["groups"]))
    if name == "docker":
        assert with_role(role) == []
