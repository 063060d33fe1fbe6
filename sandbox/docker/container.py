"""What a container is given and what it is denied, in the words of the engine. Nothing here asks or decides anything.

No setting that a promise depends on is left to the engine's defaults.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandbox import counters
from sandbox.contract import Command, Limits
from sandbox.kernel import isolation
from sandbox.supervision.watching import SPARE_MEMORY, SPARE_TASKS


@dataclass(frozen=True)
class Outside:
    """What a container gets of this machine."""

    uid: int
    gid: int
    channel: Path
    init: tuple[str, ...]  # what runs `sandbox/guest/init.py`, the last of it; buries orphans, tells of signals
    view: tuple[Path, ...]  # read-only, with what the command may read
    devices: tuple[Path, ...] = ()
    groups: tuple[int, ...] = ()  # own the devices
    counters: bool = False  # it is granted the right to read hardware counters
    cgroup_namespace: bool = True  # the engine can give it one of its own
    requests: tuple[dict[str, Any], ...] = field(default=())  # of devices, by the engine's own means


def host_options(command: Command, outside: Outside) -> dict[str, Any]:
    """Arguments of docker's `create_host_config`."""
    limits = command.limits
    ulimits = [_ulimit("core", 0)]
    if limits.file_bytes is not None:
        ulimits.append(_ulimit("fsize", limits.file_bytes))
    options: dict[str, Any] = {
        "network_mode": "none",
        "read_only": True,
        "cap_drop": ["ALL"],
        "cap_add": [*isolation.TO_CHANGE_USER, counters.CAPABILITY] if outside.counters else [],
        "security_opt": ["no-new-privileges:true"],
        "ipc_mode": "private",
        "cgroupns": "private" if outside.cgroup_namespace else None,
        "init": False,  # process 1 is ours, whatever the engine would start there
        "shm_size": limits.shm_bytes,
        "tmpfs": {"/tmp": _tmp(limits, outside)},
        "mounts": list(_mounts(command, outside)),
        "ulimits": ulimits,
        "log_config": {"Type": "none", "Config": {}},
        "oom_score_adj": 1000,
        "devices": [f"{path}:{path}:rw" for path in outside.devices],
        "group_add": [str(group) for group in outside.groups],
        "device_requests": list(outside.requests),
    }
    if limits.processes is not None:
        options["pids_limit"] = limits.processes + SPARE_TASKS
    if limits.memory_bytes is not None:
        options["mem_limit"] = limits.memory_bytes + SPARE_MEMORY
        options["memswap_limit"] = options["mem_limit"]  # both together: no swap
    if command.cpus is not None:
        options["cpuset_cpus"] = ",".join(map(str, command.cpus))
    return {name: value for name, value in options.items() if value not in (None, [], {})}


def argv(command: Command, outside: Outside) -> list[str]:
    """The command with exactly its environment: the engine and the image would add to it."""
    given = {**command.env, "RATCHET_CHANNEL": str(outside.channel)}
    become = _become(outside) if outside.counters else []
    variables = [f"{name}={value}" for name, value in given.items()]
    return [*become, *outside.init, "/usr/bin/env", "-i", *variables, *command.argv]


def _become(outside: Outside) -> list[str]:
    """An engine grants rights to root alone: such a command starts as root, and becomes its user with one right."""
    groups = f"--groups={','.join(map(str, outside.groups))}" if outside.groups else "--clear-groups"
    ids = [f"--reuid={outside.uid}", f"--regid={outside.gid}", groups]
    return ["/usr/bin/setpriv", *ids, *counters.rights(granted=True), "--no-new-privs", "--"]


def other_options(command: Command, outside: Outside) -> dict[str, Any]:
    """Further arguments of docker's `create_container`."""
    return {
        "user": "0:0" if outside.counters else f"{outside.uid}:{outside.gid}",
        "working_dir": str(command.cwd),
        "hostname": "sandbox",
        "network_disabled": True,
        "stdin_open": False,
        "entrypoint": [],
        "use_config_proxy": False,  # would put the user's proxies, passwords included, into process 1's environment
        "healthcheck": {"test": ["NONE"]},  # an image's own would run beside the command, where nobody looks
    }


def _tmp(limits: Limits, outside: Outside) -> str:
    # owned by the user: runc gives it the mode of the image's /tmp, whatever is asked for
    return f"rw,nosuid,nodev,mode=1777,uid={outside.uid},gid={outside.gid},size={limits.tmp_bytes}"


def _mounts(command: Command, outside: Outside) -> Iterable[dict[str, Any]]:
    writable = set(command.writable)
    read_only = [
        path
        for path in (*outside.view, Path(outside.init[-1]), *command.readable, outside.channel.parent)
        if path not in writable
    ]
    for path in dict.fromkeys(read_only):
        yield _mount(path, read_only=True)
    for path in dict.fromkeys(command.writable):
        yield _mount(path, read_only=False)


def _mount(path: Path, *, read_only: bool) -> dict[str, Any]:
    # not recursive: engines before 25 leave what is mounted below a read-only folder writable
    options = {"Propagation": "rprivate", "NonRecursive": True}
    return {"Type": "bind", "Source": str(path), "Target": str(path), "ReadOnly": read_only, "BindOptions": options}


def _ulimit(name: str, value: int) -> dict[str, Any]:
    return {"Name": name, "Soft": value, "Hard": value}
