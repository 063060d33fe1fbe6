"""What the look from inside makes of what it is told; that it misses each guard is the business of `test_guards.py`."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sandbox import verification
from sandbox.bwrap import provider
from sandbox.bwrap.provider import BwrapSandbox
from sandbox.contract import Command, Process, Task, Usage
from sandbox.docker.provider import DockerSandbox
from sandbox.errors import ContainmentNotHeld
from sandbox.verification import Facts, shortcomings
from tests.sandbox.conftest import as_root, available

OURS = Path("/etc/passwd").stat()
COMMAND = Command(("/python",), Path("/given"), "probe", limits=verification._LIMITS, cpus=(0,))
HOLDS: dict[str, Any] = {
    "status": {
        **{f"Cap{name}": ["0" * 16] for name in ("Inh", "Prm", "Eff", "Bnd", "Amb")},
        "NoNewPrivs": ["1"],
        "Seccomp": ["2"],
        "Uid": ["1000"] * 4,
        "Gid": ["1000"] * 4,
        "Groups": ["1000"],
    },
    "namespaces": dict.fromkeys(("ipc", "mnt", "net", "pid", "uts"), 1),
    "environment": [],
    "interfaces": ["lo"],
    "processes": [],
    "cpus": [0],
    "limits": {"core": [0, 0], "fsize": [1 << 30, 1 << 30]},
    "cgroups": {"memory": "1", "swap": "1", "processes": "1"},
    "sizes": {},
    "nodes": [],
    "written": ["/tmp", "/dev/shm"],
    "seen": {},
}


def says(groups: frozenset[int] | None = frozenset(), **changed: Any) -> list[tuple[str, str]]:
    told = Facts.model_validate({**HOLDS, **changed})
    return [(str(control), text) for control, text in shortcomings(told, COMMAND, frozenset(), groups)]


def status(**changed: list[str]) -> dict[str, list[str]]:
    return {**HOLDS["status"], **changed}


def test_of_what_holds_nothing_is_said() -> None:
    assert says(limits={"core": [0, 0], "fsize": [1 << 20, 1 << 20]}) == []  # the agent itself may write no larger ones
    assert says() == []
    groups = {"status": status(Groups=["44", "1000", "65534"])}  # those that own its device
    assert says(frozenset({44}), **groups) == []
    assert says(None, **groups) == []  # whoever does not know them cannot look
    for other in ([OURS.st_dev, OURS.st_ino + 1], [OURS.st_dev + 1, OURS.st_ino]):  # a file of the same name
        assert says(seen={"/etc/passwd": other, "/nowhere": [1, 2]}) == []


@pytest.mark.parametrize(
    ("changed", "control", "text"),
    [
        ({"status": status(Gid=["0"] * 4)}, "user", "in root's group"),
        ({"status": status(Groups=["0", "1000"])}, "user", "in root's group"),
        ({"status": status(Groups=["999", "1000"])}, "user", "groups that were not given (999)"),
        ({"processes": [17]}, "other processes", "not its own (17)"),
        ({"limits": {"core": [0, 0], "fsize": [-1, -1]}}, "file size", "not limited"),
        ({"limits": {"core": [0, 0], "fsize": [1, (1 << 30) + 1]}}, "file size", "not limited"),
        ({"cpus": [0, 1]}, "cpus", "CPUs that it was not given (1)"),
        ({"cgroups": {"memory": "1", "swap": None, "processes": "1"}}, "swap", "does not limit its swap (None)"),
    ],
)
def test_each_fact_that_was_asked_for_is_compared(changed: dict[str, Any], control: str, text: str) -> None:
    ((of, said),) = says(**changed)
    assert of == control and text in said


def test_every_fact_that_is_collected_is_compared() -> None:
    """None of them can change without being noticed."""
    worse: dict[str, Any] = {
        "status": {},
        "namespaces": {},
        "environment": ["HOME"],
        "interfaces": ["lo", "eth0"],
        "processes": [1],
        "limits": {},
        "cgroups": {},
        "sizes": {"/tmp": 1 << 40},
        "nodes": ["/dev/kvm"],
        "written": [],
        "seen": {"/etc/passwd": [OURS.st_dev, OURS.st_ino]},
        "host_settings": ["/proc/x"],
        "cpus": [0, 1],
    }
    assert set(worse) == set(Facts.model_fields)
    for name, value in worse.items():
        assert says(**{name: value}), name


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a machine with one CPU has none to keep from it")
@pytest.mark.parametrize("kind", [DockerSandbox, BwrapSandbox])
def test_a_cpu_that_is_not_held_is_seen_from_inside(kind: Any, open_folder: Path) -> None:
    sandbox = kind(sys.executable, open_folder / "scratch")
    if not available(sandbox).promises().enforced_cpus:
        pytest.skip("no CPU set can be had here")

    def look(**changed: Any) -> None:
        def start(command: Command) -> Process:
            return sandbox._start(replace(command, **changed))

        verification.verify(start, sys.executable, open_folder / "scratch", unchecked=provider._BEYOND)

    look()
    with pytest.raises(ContainmentNotHeld, match="can run on CPUs that it was not given"):
        look(cpus=None)


def test_what_mends_missing_swap_accounting_is_the_boot_option(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = DockerSandbox(sys.executable, open_folder / "scratch")
    available(DockerSandbox(sys.executable, open_folder / "other"))
    read = Facts.model_validate

    def without_accounting(told: Any) -> Facts:
        return read({**told, "cgroups": {**told["cgroups"], "swap": None}})

    monkeypatch.setattr(Facts, "model_validate", without_accounting)
    with pytest.raises(ContainmentNotHeld, match=r"does not limit its swap \(None\)") as caught:
        sandbox.promises()
    assert "swapaccount=1" in caught.value.hint


@pytest.mark.parametrize(("stopped", "why"), [([], "none of it is seen"), ([True, False], "some of it runs on")])
def test_what_would_not_be_stopped_while_another_is_timed_is_noticed(
    stopped: list[bool], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verification, "_STILL_S", 0.0)
    thawed: list[bool] = []
    tasks = tuple(Task(7, 7 + number, frozenset({0}), 0, 0, each) for number, each in enumerate(stopped))
    process: Any = SimpleNamespace(
        freeze=lambda: None, thaw=lambda: thawed.append(True), usage=lambda: Usage(tasks, 0.0)
    )
    with pytest.raises(ContainmentNotHeld, match=why):
        verification._look_at_freezing(process)
    assert thawed


@as_root
def test_an_interpreter_that_is_closed_to_other_users_is_named(open_folder: Path) -> None:
    private = open_folder / "above" / "venv"
    (private / "bin").mkdir(parents=True)
    (private / "pyvenv.cfg").write_text(f"home = {Path(sys.base_prefix, 'bin')}\n")
    (private / "bin" / "python").symlink_to(Path(sys.executable).resolve())
    python = str(private / "bin" / "python")
    private.parent.chmod(0o700)  # passed by, since what lies in it is mounted
    assert verification._closed_to_its_user(python) != private.parent
    private.chmod(0o700)
    assert verification._closed_to_its_user(python) == private
    available(BwrapSandbox(sys.executable, open_folder / "first"))
    with pytest.raises(verification.DidNotRun, match="does not run in the sandbox") as caught:
        BwrapSandbox(python, open_folder / "scratch").promises()
    assert f"chmod o+rx {private}" in caught.value.hint
