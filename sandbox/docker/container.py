"""What a container is given and what it is denied, in the words of the engine. Nothing here asks or decides anything.

No setting that a promise depends on is left to the engine's defaults.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandbox import counters
from sandbox.contract import Command
from sandbox.devices.access import Access
from sandbox.kernel import isolation
from sandbox.supervision.watching import SPARE_MEMORY, SPARE_TASKS

# What every container of ours is denied, whatever runs in it.
ISOLATED: dict[str, Any] = {
    "network_mode": "none",
    "read_only": True,
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges:true"],
    "ipc_mode": "private",
    "cgroupns": "private",
    "init": False,  # process 1 is ours, whatever the engine would start there
    "log_config": {"Type": "none", "Config": {}},
}
# Further arguments of docker's `create_container`.
UNCONNECTED: dict[str, Any] = {
    "network_disabled": True,
    "entrypoint": [],
    "use_config_proxy": False,  # would put the user's proxies, passwords included, into process 1's environment
    "healthcheck": {"test": ["NONE"]},  # an image's own would run beside the command, unseen
}


@dataclass(frozen=True)
class Outside:
    """What a container gets of this machine."""

    uid: int
    gid: int
    channel: Path
    init: tuple[str, ...]  # what runs `sandbox/guest/init.py`, the last of it; reaps orphans, reports signals
    view: tuple[Path, ...]  # read-only, with what the command may read
    gpu: Access = field(default_factory=Access)
    counters: bool = False  # it is granted the right to read hardware counters


def host_options(command: Command, outside: Outside) -> dict[str, Any]:
    """Arguments of docker's `create_host_config`."""
    limits = command.limits
    options: dict[str, Any] = {
        **ISOLATED,
        "cap_add": [*isolation.TO_CHANGE_USER, counters.CAPABILITY] if outside.counters else [],
        "shm_size": limits.shm_bytes,
        # owned by the user: runc gives it the mode of the image's /tmp, whatever is asked for
        "tmpfs": {
            "/tmp": f"rw,nosuid,nodev,mode=1777,uid={outside.uid},gid={outside.gid},size={limits.tmp_bytes}",
        },
        "mounts": list(_mounts(command, outside)),
        "ulimits": [
            {"Name": name, "Soft": most, "Hard": most}
            for name, most in (("core", 0), ("fsize", limits.file_bytes))
            if most is not None
        ],
        "oom_score_adj": 1000,
        "devices": [f"{path}:{path}:rw" for path in outside.gpu.nodes],
        "group_add": [str(group) for group in outside.gpu.groups],
        "device_requests": list(outside.gpu.requests),
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
    groups = f"--groups={','.join(map(str, outside.gpu.groups))}" if outside.gpu.groups else "--clear-groups"
    ids = [f"--reuid={outside.uid}", f"--regid={outside.gid}", groups]
    return ["/usr/bin/setpriv", *ids, *counters.rights(granted=True), "--no-new-privs", "--"]


def other_options(command: Command, outside: Outside) -> dict[str, Any]:
    """Further arguments of docker's `create_container`."""
    return {
        **UNCONNECTED,
        "user": "0:0" if outside.counters else f"{outside.uid}:{outside.gid}",
        "working_dir": str(command.cwd),
        "hostname": "sandbox",
        "stdin_open": False,
    }


def _mounts(command: Command, outside: Outside) -> Iterable[dict[str, Any]]:
    read_only = (*outside.view, Path(outside.init[-1]), *command.readable, outside.channel.parent)
    modes = dict.fromkeys(read_only, True) | dict.fromkeys(command.writable, False)
    # not recursive: engines before 25 leave what is mounted below a read-only folder writable
    options = {"Propagation": "rprivate", "NonRecursive": True}
    for path, mode in sorted(modes.items(), key=lambda each: not each[1]):  # those to write to last
        each = {"Type": "bind", "Source": str(path), "Target": str(path), "ReadOnly": mode}
        yield {**each, "BindOptions": options}
