"""Take one guard of a container or of bubblewrap away, from what the provider asks for on its way out.

The guards' names are those of the tables in `test_guards.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from sandbox import verification
from sandbox.bwrap import provider as bwrap
from sandbox.bwrap.arguments import Outside
from sandbox.contract import Command
from sandbox.docker import watcher
from sandbox.docker.engine import Engine
from sandbox.supervision import control_groups, spawner

KEEPS_THE_KEYRING = Path(__file__).with_name("keeps_the_keyring.py")
_CONTROL_GROUPS = ["--perms", "0555", "--size", "4096", "--tmpfs", "/sys/fs/cgroup", "--remount-ro", "/sys/fs/cgroup"]


def unverified(patch: pytest.MonkeyPatch) -> None:
    """Start commands without the look from inside."""
    trial = Command(("/bin/true",), Path("/"), "trial")
    patch.setattr(verification, "verify", lambda start, *given, **named: start(trial).stop())


def weaken(patch: pytest.MonkeyPatch, provider: str, guards: Iterable[str]) -> None:
    (_weaken_docker if provider == "docker" else _weaken_bwrap)(patch, frozenset(guards))


def _ulimits_but(name: str) -> Callable[[dict[str, Any]], object]:
    return lambda host: host.update(ulimits=[each for each in host["ulimits"] if each["Name"] != name])


def _forget(*names: str, **others: Any) -> Callable[[dict[str, Any]], object]:
    def change(host: dict[str, Any]) -> None:
        for name in names:
            host.pop(name, None)
        host.update(others)

    return change


def _writable_mounts(host: dict[str, Any]) -> None:
    for mount in host["mounts"]:
        mount["ReadOnly"] = False


def _host_files(host: dict[str, Any]) -> None:
    del host["tmpfs"]
    options = {"Propagation": "rprivate", "NonRecursive": True}
    for path in filter(Path.is_dir, map(Path, ("/etc", "/home", "/root", "/tmp"))):
        mount = {"Type": "bind", "Source": str(path), "Target": str(path), "ReadOnly": True, "BindOptions": options}
        host["mounts"].append(mount)


# what becomes of the arguments of `create_host_config`
DOCKER: dict[str, Callable[[dict[str, Any]], object]] = {
    "network": _forget(network_mode="host"),
    "read-only root": _forget("read_only"),
    "capabilities": _forget("cap_drop"),
    "new privileges": _forget("security_opt"),
    "system calls": lambda host: host.update(security_opt=[*host["security_opt"], "seccomp=unconfined"]),
    "user": lambda host: None,  # of the container's other options
    "processes": _forget("pids_limit"),
    "memory": _forget("mem_limit", "memswap_limit"),
    "swap": _forget(memswap_limit=-1),
    "file size": _ulimits_but("fsize"),
    "core dumps": _ulimits_but("core"),
    "ipc": _forget("shm_size", ipc_mode="host"),
    "tmp": lambda host: host.update(tmpfs={"/tmp": host["tmpfs"]["/tmp"].partition(",size=")[0]}),
    "shm": _forget("shm_size"),
    "read-only mounts": _writable_mounts,
    "environment": lambda host: None,  # of the command line
    "pid namespace": _forget(pid_mode="host"),
    "host files": _host_files,
}


def _weaken_docker(patch: pytest.MonkeyPatch, guards: frozenset[str]) -> None:
    create, order = Engine.create, watcher.Order

    def weaker(
        self: Engine, name: str, image: str, argv: list[str], host: dict[str, Any], role: str, **options: Any
    ) -> str:
        for guard in guards:
            DOCKER[guard](host)
        if "user" in guards:
            options["user"] = "0:0"
        if "network" in guards:
            options["network_disabled"] = False
        if "environment" in guards:
            argv = _without(argv, ["-i"])
        return create(self, name, image, argv, host, role, **options)

    def unwatched(**given: Any) -> watcher.Order:
        unbounded = {f"{kind}_bytes" if kind == "memory" else kind: None for kind in guards & {"memory", "processes"}}
        return order(**{**given, "bounds": given["bounds"]._replace(**unbounded)})

    patch.setattr(Engine, "create", weaker)
    patch.setattr(watcher, "Order", unwatched)


Words = list[str]


def _without(words: Words, run: Words, instead: Iterable[str] = ()) -> Words:
    """`words` with one other run in place of each that is like `run`; there has to be one."""
    found, at = [], 0
    while at < len(words):
        if words[at : at + len(run)] == run:
            found += list(instead)
            at += len(run)
        else:
            found.append(words[at])
            at += 1
    assert found != words, f"{run} is not among {words}"
    return found


def _all_rights(words: Words, command: Command, outside: Outside) -> Words:
    first = words.index("--cap-drop")
    last = len(words) - words[::-1].index("--cap-add") + 1
    kept = [*words[:first], *words[last:]]
    return [word for word in kept if not word.startswith(("--inh-caps=", "--bounding-set=", "--ambient-caps="))]


def _without_setpriv(words: Words, command: Command, outside: Outside) -> Words:
    first = words.index(str(outside.setpriv))
    return [*words[:first], *words[words.index("--", first) + 1 :]]


def _without_size(path: str) -> Callable[[Words, Command, Outside], Words]:
    def change(words: Words, command: Command, outside: Outside) -> Words:
        at = next(at for at in range(len(words)) if words[at : at + 2] == ["--tmpfs", path])
        assert words[at - 2] == "--size"
        return [*words[: at - 2], *words[at:]]

    return change


def _bound_to_write(words: Words, command: Command, outside: Outside) -> Words:
    for path in map(str, (*command.readable, outside.channel.parent)):
        words = _without(words, ["--ro-bind", path, path], ["--bind", path, path])
    return words


def _all_files(words: Words, command: Command, outside: Outside) -> Words:
    size = str(command.limits.tmp_bytes)
    words = _without(words, ["--perms", "1777", "--size", size, "--tmpfs", "/tmp"])
    words = _without(words, _CONTROL_GROUPS)
    for path in map(str, (*outside.view, "/sys")):
        words = _without(words, ["--ro-bind", path, path])
    while "--dir" in words:
        at = words.index("--dir")
        words = [*words[: at - 2], *words[at + 2 :]]
    return _without(words, ["--proc"], ["--ro-bind", "/", "/", "--proc"])


def _drop(*runs: str) -> Callable[[Words, Command, Outside], Words]:
    def change(words: Words, command: Command, outside: Outside) -> Words:
        for run in runs:
            words = _without(words, run.split())
        return words

    return change


BWRAP: dict[str, Callable[[Words, Command, Outside], Words]] = {
    "network": _drop("--unshare-net"),
    "ipc": _drop("--unshare-ipc"),
    "pid namespace": _drop("--unshare-pid"),
    # root needs them to change its user, and forbids none
    "user namespaces": lambda words, command, outside: [word for word in words if word != "--disable-userns"],
    "capabilities": _all_rights,
    "user": _without_setpriv,
    "environment": _drop("-i"),
    "tmp": _without_size("/tmp"),
    "shm": _without_size("/dev/shm"),
    "read-only root": _drop("--remount-ro /", "--remount-ro /dev"),
    "read-only mounts": _bound_to_write,
    "devices": lambda words, command, outside: _without(
        _without(words, ["--dev", "/dev"], ["--dev-bind", "/dev", "/dev"]), ["--remount-ro", "/dev"]
    ),
    "control groups": _drop(" ".join(_CONTROL_GROUPS)),
    "host files": _all_files,
    "kernel limits": lambda words, command, outside: words,
    "keyring": lambda words, command, outside: words,
}


def _weaken_bwrap(patch: pytest.MonkeyPatch, guards: frozenset[str]) -> None:
    argv, make = bwrap.argv, control_groups.make

    def weaker(command: Command, outside: Outside) -> Words:
        words = argv(command, outside)
        for guard in sorted(guards):
            words = BWRAP[guard](words, command, outside)
        return words

    patch.setattr(bwrap, "argv", weaker)
    if "kernel limits" in guards:
        patch.setattr(control_groups, "make", lambda name, command, kinds: make(name, command, kinds - {"limits"}))
    if "keyring" in guards:
        patch.setattr(spawner, "_SCRIPT", KEEPS_THE_KEYRING)
