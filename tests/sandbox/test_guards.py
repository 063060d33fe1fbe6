"""Every guard is missed: with one taken away, the check that it serves fails, and so does the look from inside.

A check that holds whatever is taken away would tell nothing.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.bwrap.provider import BwrapSandbox
from sandbox.docker.provider import DockerSandbox
from sandbox.errors import ContainmentNotHeld
from sandbox.local.provider import LocalSandbox
from sandbox.supervision.process import SupervisedProcess
from tests.files import folder_open_to_all
from tests.sandbox.attacks import bounds, files, neighbours, network, rights, weaken
from tests.sandbox.attacks.bench import Bench, Check
from tests.sandbox.attacks.suite import ALL, NotTried, tried
from tests.sandbox.conftest import PYTHON, available

KINDS: dict[str, Any] = {"docker": DockerSandbox, "bwrap": BwrapSandbox}
GUARDS: dict[str, Any] = {"docker": weaken.DOCKER, "bwrap": weaken.BWRAP}
as_root = os.geteuid() == 0


WITHOUT_LIMIT: dict[str, tuple[Check, ...]] = {
    "memory_bytes": (bounds.memory, bounds.hidden_memory, bounds.memory_of_child),
    "processes": (bounds.fork_bomb,),
    "file_bytes": (bounds.file_size,),
    "disk_bytes": (bounds.disk, bounds.disk_deep, bounds.disk_at_once, bounds.disk_empty),
    "free_disk_bytes": (bounds.disk_without_names,),
    "output_bytes": (bounds.output,),
}
WITHOUT_FILES = (
    *(files.beside, files.private, files.scratch, files.through_processes),
    *(files.climbing, files.own_link, files.given_link),
)
WITHOUT: dict[str, dict[str, tuple[Check, ...]]] = {
    "docker": {
        "network": (network.tcp, network.udp, network.abstract),
        "host files": WITHOUT_FILES,
        "read-only root": (files.mounts,),
        "read-only root+user+capabilities": (files.system,),
        "read-only mounts": (files.given_file, files.system, files.mounts, files.nested),
        "pid namespace": (neighbours.visible, neighbours.signals, neighbours.tracing),
        "ipc": (neighbours.system_v, files.scratch, bounds.shm),
        "environment": (neighbours.environment,),
        "capabilities": (rights.capabilities,),
        "user+capabilities": (rights.user, rights.special_files),
        "new privileges": (rights.new_privileges, rights.set_user_id),
        "system calls": (rights.system_calls, rights.user_namespace, rights.mounting),
        "processes": (bounds.fork_bomb, bounds.fork_burst),
        "memory": (bounds.memory, bounds.hidden_memory, bounds.memory_of_child),
        "file size": (bounds.file_size,),
        "core dumps": (bounds.core_dump,),
        "tmp": (bounds.tmp,),
        "shm": (bounds.shm,),
    },
    "bwrap": {
        "network": (network.tcp, network.udp, network.abstract),
        "host files": (*WITHOUT_FILES, files.engines),
        "read-only root": (files.mounts,),
        "read-only mounts": (files.given_file, files.system, files.mounts, files.nested),
        "pid namespace": (neighbours.visible, neighbours.signals, neighbours.tracing),
        "ipc": (neighbours.system_v,),
        "control groups": (neighbours.groups,),
        "environment": (neighbours.environment,),
        "capabilities": (rights.capabilities,),
        "user+capabilities": (rights.user, rights.special_files, rights.mounting, rights.settings),
        "user namespaces": (rights.user_namespace, rights.mounting),
        "devices": (rights.devices,),
        "kernel limits": (bounds.hidden_memory, bounds.memory_of_child),
        "tmp": (bounds.tmp,),
        "shm": (bounds.shm,),
    },
}
# Guards that no check misses, and why.
UNSERVED = {
    "swap": "only the look from inside misses it: few machines have any, and to fill it would take too long",
    "keyring": "it takes an agent with a keyring to miss it: see `test_containment.py`",
}
# Only root, or only somebody else, has these to lose, or gets a command to run at all without them.
FOR_ROOT = {
    ("docker", "user"),
    ("bwrap", "user"),
    ("bwrap", "capabilities"),
    ("bwrap", "pid namespace"),
    ("docker", rights.set_user_id),
}
FOR_OTHERS = {("bwrap", "user namespaces")}


def says_nothing(provider: str, *about: str | Check) -> bool:
    return any((provider, each) in (FOR_OTHERS if as_root else FOR_ROOT) for each in about)


def cases() -> Iterator[Any]:
    """A provider, guards that are taken away together, a limit that is not set, and the check that fails for it."""
    for provider, table in WITHOUT.items():
        taken = [(frozenset(names.split("+")), frozenset[str](), names, checks) for names, checks in table.items()]
        unset = [(frozenset[str](), frozenset({n}), f"a limit on {n}", checks) for n, checks in WITHOUT_LIMIT.items()]
        for guards, limit, what, checks in (*taken, *unset):
            for check in checks:
                if not says_nothing(provider, *guards, check):
                    yield pytest.param(provider, guards, limit, check, id=f"{provider} without {what}: {check.name}")


@pytest.mark.slow
@pytest.mark.guard("attacks")
@pytest.mark.parametrize(("provider", "guards", "limit", "check"), [*cases()])
def test_a_check_fails_without_its_guard(
    provider: str, guards: frozenset[str], limit: Any, check: Check, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for needed in {provider, "docker" if check is files.engines else provider}:
        _available(needed)
    weaken.unverified(monkeypatch)
    weaken.weaken(monkeypatch, provider, guards)
    sandbox = KINDS[provider](PYTHON, open_folder / "scratch")
    with Bench(sandbox, PYTHON, open_folder, unlimited=limit, ending_s=0.5) as bench:
        seen = tried(check, bench)
    assert seen is not None
    assert not any(words in seen for words in ("did not answer", "broke off", "does not run"))


@functools.cache
def _available(provider: str) -> None:
    with folder_open_to_all() as folder:
        available(KINDS[provider](PYTHON, folder / "scratch"))


@pytest.mark.parametrize("provider", KINDS)
@pytest.mark.guard("attacks")
def test_every_guard_is_missed_by_a_check(provider: str) -> None:
    missed = {guard for guards in WITHOUT[provider] for guard in guards.split("+")}
    assert missed | (set(UNSERVED) & GUARDS[provider].keys()) == GUARDS[provider].keys()


# What the look from inside, before the first command, says of each.
OF_BOTH = {
    "network": "network interfaces",
    "host files": "it sees /",
    "read-only mounts": "it can write to",
    "pid namespace": "shares the pid namespace",
    "ipc": "shares the ipc namespace",
    "environment": "variables that were not given",
    "capabilities": "it has capabilities",
    "user": "it runs as root",
    "tmp": "/tmp holds",
    "shm": "/dev/shm holds",
}
SAYS: dict[str, dict[str, str]] = {
    "docker": {
        **OF_BOTH,
        "new privileges": "set-user-id",
        "system calls": "no filter of system calls",
        "processes": "does not limit its processes",
        "memory": "does not limit its memory",
        "swap": "does not limit its swap",
        "file size": "the size of its files is not limited",
        "core dumps": "core dumps",
    },
    "bwrap": {**OF_BOTH, "devices": "devices that were not given"},
}
# Who runs as root without capabilities cannot enter its own folders: there is nothing to look from.
TOGETHER = {"user": frozenset({"user", "capabilities"})}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("provider", "guard"),
    [(name, guard) for name, says in SAYS.items() for guard in says if not says_nothing(name, guard)],
)
@pytest.mark.guard("missing control")
def test_the_look_from_inside_misses_a_guard(
    provider: str, guard: str, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _available(provider)
    weaken.weaken(monkeypatch, provider, TOGETHER.get(guard, frozenset({guard})))
    with pytest.raises(ContainmentNotHeld) as caught:
        KINDS[provider](PYTHON, open_folder / "scratch").promises()
    assert SAYS[provider][guard] in caught.value.message


@pytest.mark.parametrize(
    ("check", "says"),
    [(bounds.orphans, "processes went on"), (bounds.leftovers, "there is still")],
    ids=["orphans", "rest"],
)
def test_a_sandbox_that_leaves_something_behind_is_found_out(
    check: Check, says: str, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its processes are not ended when they are asked to be."""
    sandbox = LocalSandbox(PYTHON, open_folder / "scratch")
    sandbox.promises()
    stop, started = SupervisedProcess.stop, list[SupervisedProcess]()
    monkeypatch.setattr(SupervisedProcess, "stop", lambda process: started.append(process))
    try:
        with Bench(sandbox, PYTHON, open_folder) as bench:
            assert says in (tried(check, bench) or "it held")
    finally:
        for process in started:
            stop(process)


def test_a_guest_that_does_not_run_holds_nothing(open_folder: Path) -> None:
    sandbox = LocalSandbox(PYTHON, open_folder / "scratch")
    with Bench(sandbox, "/bin/false", open_folder) as bench:
        for check in ALL:
            with contextlib.suppress(NotTried):
                assert tried(check, bench) is not None
