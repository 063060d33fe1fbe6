"""The sandbox of tests that judge logic: what it forks finds and leaves what a fresh interpreter would."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.contract import Command, Process
from tests.files import write_files
from tests.forking import ForkingSandbox

TELL = """
import ctypes, json, os, sys
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
print(json.dumps({
    "argv": sys.argv, "cwd": os.getcwd(), "path": sys.path[0], "name": __name__, "env": sorted(os.environ),
    "descriptors": len(os.listdir("/proc/self/fd")) - 1, "bytecode": sys.dont_write_bytecode,
    "memory": ctypes.string_at(libc.malloc(5000), 64)[32:].hex(),
}))
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    started = []

    def start_script(code: str, *argv: str, **fields: Any) -> Process:
        write_files(tmp_path, {"script.py": code})
        command = (sys.executable, str(tmp_path / "script.py"), *argv)
        started.append(ForkingSandbox().start(Command(command, tmp_path, "test", **fields)))
        return started[-1]

    yield start_script
    for process in started:
        process.stop()


def ended(process: Process) -> Any:
    found = process.wait(60.0)
    assert found is not None
    return found


@pytest.mark.slow
def test_a_script_finds_what_it_would_find_in_an_interpreter_of_its_own(
    start: Callable[..., Process], tmp_path: Path
) -> None:
    env = {"A": "1", "PYTHONDONTWRITEBYTECODE": "1", "MALLOC_PERTURB_": "128"}
    told = json.loads(ended(start(TELL, "x", env=env)).output_tail)
    assert told.pop("memory") == "7f" * 32
    assert told == {
        "argv": [str(tmp_path / "script.py"), "x"],
        "cwd": str(tmp_path),
        "path": str(tmp_path),
        "name": "__main__",
        "env": sorted([*env, "RATCHET_CHANNEL"]),
        "descriptors": 3,
        "bytecode": True,
    }


@pytest.mark.parametrize(
    ("code", "status", "number", "says"),
    [
        ("pass", 0, None, ""),
        ("raise SystemExit('no')", 1, None, "no"),
        ("1 / 0", 1, None, "ZeroDivisionError"),
        ("import os; os._exit(3)", 3, None, ""),
        ("import os; os.kill(os.getpid(), 11)", None, 11, ""),
    ],
)
def test_it_is_told_how_it_ended(
    start: Callable[..., Process], code: str, status: int | None, number: int | None, says: str
) -> None:
    found = ended(start(code))
    assert (found.status, found.signal, found.reason) == (status, number, "signal" if number else "exited")
    assert says in found.output_tail


def test_it_ends_with_all_its_children(start: Callable[..., Process]) -> None:
    process = start("import os, time\nif os.fork() == 0: os.setsid()\nwhile True: pass")
    while len(tasks := process.usage().tasks) < 2:
        time.sleep(0.01)
    assert process.stop().reason == "stopped"
    assert not [task.pid for task in tasks if Path(f"/proc/{task.pid}").exists()]
