"""One command serves several workers: what one of them started is ended, what it left is gone, before the next."""

from __future__ import annotations

import secrets
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox.contract import Process, ProcessEnded
from tests import guest
from tests.sandbox.conftest import PROVIDERS, until

CONNECTS_TWICE = """
{first}
channel.receive()
channel.close()
{then}
channel = connect(os.environ["RATCHET_CHANNEL"])
channel.send({{"pid": os.getpid()}})
channel.receive()
"""
# the guest's own parent, in a folder as it has it
WORKERS = """
import importlib, os, random, sys, time
package = importlib.import_module("guest_package.parent")
channel = package.channel_of_worker(os.environ["RATCHET_CHANNEL"], ["numpy", "this.is.no.module", "{imports}"])
{first}
while True:
    asked = channel.receive()
    channel.send({{"answer": repr(eval(asked["what"]))}})
"""
LEFT_FILE = f"ratchet-left-{secrets.token_hex(4)}"
LEFT = "(os.fork() or (os.setsid(), time.sleep(600)))"


def test_the_first_process_connects_again(run: Any) -> None:
    process = run(CONNECTS_TWICE.format(first="", then=""), renewable=True)
    process.channel.send({})
    assert process.renew(20.0)
    assert process.channel.receive(20.0)["pid"]
    process.channel.send({})
    with pytest.raises(ProcessEnded):
        process.renew(20.0)


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("", "os.fork() or __import__('time').sleep(600)"),
        # another process of it, in the place of the one that is expected
        ("", "os.fork() and __import__('time').sleep(600)"),
    ],
    ids=["another is left", "another connects"],
)
def test_nothing_else_may_be_left(first: str, then: str, run: Any) -> None:
    process = run(CONNECTS_TWICE.format(first=first, then=then), renewable=True)
    process.channel.send({})
    try:
        assert not process.renew(1.0)
    except TimeoutError:
        assert "and" in then


Workers = Callable[..., Process]


@pytest.fixture(params=["bwrap", "docker", "local"])
def workers(request: pytest.FixtureRequest, open_folder: Path, guests_of: Any) -> Workers:
    sandbox, python = PROVIDERS[request.param](open_folder / "scratch")
    promised = sandbox.promises()
    if not (promised.contained or promised.separate_users):
        pytest.skip("its user has other processes")
    shutil.copytree(guest.FOLDER, open_folder / "guest_package")

    def start(first: str = "", imports: str = "json") -> Process:
        code = WORKERS.format(first=first, imports=imports)
        env = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(open_folder)}
        started: Process = guests_of(sandbox, python)(
            code, connects=False, renewable=True, env=env, readable=(open_folder,)
        )
        return started

    return start


def asked(process: Process, what: str) -> Any:
    process.channel.send({"what": what})
    return eval(process.channel.receive(20.0)["answer"])


def test_a_worker_finds_nothing_of_the_one_before(workers: Workers) -> None:
    process = workers()
    first = asked(process, f"os.getpid(), {LEFT}, random.random()")
    shared = guest.module("parent").SHARED_FOLDERS
    places = [each for each in shared if asked(process, f"os.access({each!r}, os.W_OK)")]
    assert "/tmp" in places
    for place in places:
        asked(process, f"os.close(os.open({f'{place}/{LEFT_FILE}'!r}, os.O_CREAT | os.O_WRONLY))")
    asked(process, f"os.makedirs('/tmp/{LEFT_FILE}-folder/in')")
    asked(
        process, "globals().__setitem__('mine', 1), os.environ.__setitem__('MINE', '1'), bool(sys.modules.pop('json'))"
    )
    assert process.renew(20.0)
    assert process.usage().processes <= 2, "itself, and process 1 of a container"
    second = asked(
        process, "os.getpid(), random.random(), 'mine' in globals(), 'MINE' in os.environ, 'json' in sys.modules"
    )
    assert second[0] != first[0] and second[1] != first[2] and second[2:] == (False, False, True)
    assert not any(asked(process, f"os.path.exists({f'{place}/{LEFT_FILE}'!r})") for place in places)
    assert not asked(process, f"os.path.exists('/tmp/{LEFT_FILE}-folder')")


def test_a_worker_cannot_look_into_its_parent_but_into_itself(workers: Workers) -> None:
    process = workers()
    assert asked(process, "os.access(f'/proc/{os.getppid()}/mem', os.R_OK)") is False
    assert asked(process, "len(open('/proc/self/maps').read()) > 0")


@pytest.mark.parametrize(("ends", "status", "by"), [("os._exit(7)", 7, None), ("os.kill(os.getpid(), 11)", None, 11)])
def test_a_worker_that_ends_by_itself_takes_its_parent_along(
    ends: str, status: int | None, by: int | None, workers: Workers
) -> None:
    process = workers()
    process.channel.send({"what": ends})
    found = until(process.poll)
    assert (found.status, found.signal) == (status, by)


def test_a_worker_that_stops_its_parent_is_not_followed_by_another(workers: Workers) -> None:
    process = workers()
    asked(process, f"os.kill(os.getppid(), {int(signal.SIGSTOP)})")
    with pytest.raises((TimeoutError, ProcessEnded)):
        process.renew(1.0)


@pytest.mark.parametrize(
    "unlike",
    [
        "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()",
        "held = open(__file__)",
        "cuda = types.SimpleNamespace(is_available=lambda: True); sys.modules['torch'] = types.SimpleNamespace(cuda=cuda)",
    ],
    ids=["a thread", "an open file", "a device"],
)
def test_where_a_fork_would_not_be_like_a_start_there_is_one_worker(
    unlike: str, workers: Workers, open_folder: Path
) -> None:
    (open_folder / "unlike.py").write_text(f"import sys, threading, time, types\n{unlike}\n")
    process = workers(imports="unlike")
    assert asked(process, "'unlike' in sys.modules")
    with pytest.raises(ProcessEnded):
        process.renew(20.0)
