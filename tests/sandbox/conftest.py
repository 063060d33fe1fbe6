"""Every provider on this machine, and guests written by the tests, for the contract and the attack suite.

A provider adds itself to `PROVIDERS`; `test_contract.py` and `test_containment.py` then run against it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from sandbox.bwrap.provider import BwrapSandbox
from sandbox.contract import Command, Process, Sandbox
from sandbox.docker.provider import DockerSandbox
from sandbox.errors import SandboxUnavailable
from sandbox.guest import wire
from sandbox.local.provider import LocalSandbox
from sandbox.supervision import user_ids
from tests.files import folder_open_to_all
from tests.sandbox.attacks.bench import eventually
from tests.sandbox.uncontained import WithSignals


def open_interpreter() -> str | None:
    """A Python that every user of this machine may run, so that root can try separate users."""
    anybody = 1_900_000_000
    for path in map(Path, (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3")):
        if all(step.exists() and user_ids.closed_to(anybody, (), step) is None for step in (path, path.parent)):
            return str(path)
    return None


def contained(kind: Any) -> Callable[[Path], tuple[Sandbox, str]]:
    return lambda scratch: (available(kind(sys.executable, scratch, owned=(scratch.parent,))), sys.executable)


def available(sandbox: Sandbox) -> Sandbox:
    """Skips where the provider cannot work, unless this machine is said to have what it needs."""
    try:
        sandbox.promises()
    except SandboxUnavailable as error:
        if os.environ.get("RATCHET_REQUIRE_DOCKER") == "1":
            raise
        pytest.skip(f"{sandbox.name} is not available here: {error}")
    return sandbox


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
# one that every user may run
PYTHON = open_interpreter() or sys.executable
# a sandbox and the interpreter for its guests: all that this machine offers, and less of it
PROVIDERS: dict[str, Callable[[Path], tuple[Sandbox, str]]] = {
    "bwrap": contained(BwrapSandbox),
    "docker": contained(DockerSandbox),
    "local": lambda scratch: (LocalSandbox(PYTHON, scratch), PYTHON),
    "local-with-signals": lambda scratch: (WithSignals(sys.executable, scratch), sys.executable),
}
CONNECT = """
import os, sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from wire import connect
channel = connect(os.environ["RATCHET_CHANNEL"])
"""


class Run(Protocol):
    """Start a guest made of Python source; it is stopped after the test."""

    def __call__(self, code: str, *, connects: bool = True, **fields: Any) -> Process: ...


@pytest.fixture
def open_python() -> str:
    return open_interpreter() or pytest.skip("every Python here lies in a folder that is closed to other users")


@pytest.fixture(scope="session", params=PROVIDERS)
def provided(request: pytest.FixtureRequest) -> Iterator[tuple[Sandbox, str]]:
    with folder_open_to_all() as folder:
        yield PROVIDERS[request.param](folder / "scratch")


@pytest.fixture
def local(tmp_path: Path) -> LocalSandbox:
    return LocalSandbox(sys.executable, tmp_path / "scratch")


@pytest.fixture
def sandbox_provider(provided: tuple[Sandbox, str]) -> Sandbox:
    return provided[0]


@pytest.fixture
def run(provided: tuple[Sandbox, str], open_folder: Path) -> Iterator[Run]:
    sandbox, python = provided
    with guests(sandbox, open_folder, python) as start:
        yield start


@pytest.fixture
def guests_of(open_folder: Path) -> Iterator[Callable[..., Run]]:
    """Guests of a sandbox that the test made itself."""
    with contextlib.ExitStack() as ending:
        yield lambda sandbox, python=sys.executable: ending.enter_context(guests(sandbox, open_folder, python))


@contextlib.contextmanager
def guests(sandbox: Sandbox, folder: Path, python: str) -> Iterator[Run]:
    """Starts guests of one sandbox, and stops them in the end."""
    started: list[Process] = []

    def start(code: str, *, connects: bool = True, **fields: Any) -> Process:
        home = Path(tempfile.mkdtemp(prefix="guest-", dir=folder))
        home.chmod(0o755)
        shutil.copy(wire.__file__, home / "wire.py")
        script = home / "guest.py"
        script.write_text((CONNECT if connects else "") + code)
        given = {"cwd": home, "role": "guest", "env": {"PYTHONDONTWRITEBYTECODE": "1"}, "readable": (home,), **fields}
        started.append(sandbox.start(Command(argv=(python, str(script)), **given)))
        return started[-1]

    try:
        yield start
    finally:
        for process in started:
            process.stop()


def until(claim: Callable[[], Any], *, patience_s: float = 20.0) -> Any:
    """The first true value of `claim`; fails when there is none."""
    value = eventually(claim, patience_s)
    assert value, "it never came true"
    return value
