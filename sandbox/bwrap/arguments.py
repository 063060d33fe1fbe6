"""What bubblewrap is told: which namespaces, which folders, and who the command is.

Refuses to leave anything to its defaults when a promise hangs on it. `without` names guards to leave out: the tests use
it to see that something notices.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sandbox import counters
from sandbox.contract import Command
from sandbox.kernel import isolation

Guard = Literal[
    "network",
    "read-only root",
    "capabilities",
    "user",
    "ipc",
    "tmp",
    "shm",
    "read-only mounts",
    "environment",
    "pid namespace",
    "host files",
    "devices",
    "control groups",
    "user namespaces",
    "kernel limits",
    "keyring",
]


@dataclass(frozen=True)
class Outside:
    """What a command gets of this machine."""

    program: Path  # bubblewrap
    setpriv: Path | None  # to become `uid`; None to stay who we are, in a user namespace
    uid: int | None
    channel: Path
    view: tuple[Path, ...]
    devices: tuple[Path, ...] = ()
    groups: tuple[int, ...] = ()
    counters: bool = False  # it is granted the right to read them
    without: frozenset[Guard] = frozenset()


def argv(command: Command, outside: Outside) -> list[str]:
    return [str(outside.program), *_isolation(outside), *_folders(command, outside), "--", *_inner(command, outside)]


def _isolation(outside: Outside) -> list[str]:
    without = outside.without
    told = ["--die-with-parent", "--new-session", "--unshare-uts", "--hostname", "sandbox", "--unshare-cgroup-try"]
    for guard, option in (("network", "--unshare-net"), ("ipc", "--unshare-ipc"), ("pid namespace", "--unshare-pid")):
        if guard not in without:
            told.append(option)
    if outside.uid is None:
        return [*told, "--unshare-user", *([] if "user namespaces" in without else ["--disable-userns"])]
    if "capabilities" in without:
        return told
    kept = (*isolation.TO_CHANGE_USER, *((counters.CAPABILITY,) if outside.counters else ()))
    return [*told, "--cap-drop", "ALL", *(word for name in kept for word in ("--cap-add", name))]


def _folders(command: Command, outside: Outside) -> list[str]:
    without = outside.without
    told = ["--ro-bind", "/", "/"] if "host files" in without else []
    told += ["--proc", "/proc", *(["--dev-bind", "/dev", "/dev"] if "devices" in without else ["--dev", "/dev"])]
    told += _scratch(command, outside)
    given = dict(_given(command, outside))
    if "host files" not in without:
        told += [*_ways(given), "--ro-bind", "/sys", "/sys"]
        if "control groups" not in without and Path("/sys/fs/cgroup").is_dir():  # they tell of what else runs here
            told += ["--perms", "0555", "--size", "4096", "--tmpfs", "/sys/fs/cgroup", "--remount-ro", "/sys/fs/cgroup"]
    # what lies in another comes after it, or would be hidden by it: a folder to read in one to write stays read-only
    for path, how in sorted(given.items(), key=lambda each: len(each[0].parts)):
        told += [how, str(path), str(path)]
    for device in outside.devices:
        told += ["--dev-bind", str(device), str(device)]
    if "read-only root" not in without:
        # without root the user owns both, and they are in memory that no limit bounds
        told += ["--remount-ro", "/", *([] if "devices" in without else ["--remount-ro", "/dev"])]
    return [*told, "--chdir", "/"]


def _scratch(command: Command, outside: Outside) -> list[str]:
    limits, without = command.limits, outside.without
    told = []
    for guard, path, size in (("tmp", "/tmp", limits.tmp_bytes), ("shm", "/dev/shm", limits.shm_bytes)):
        if guard == "tmp" and "host files" in without:
            continue
        told += ["--perms", "1777", *([] if guard in without else ["--size", str(size)]), "--tmpfs", path]
    return told


def _given(command: Command, outside: Outside) -> Iterable[tuple[Path, str]]:
    """Every path that is shown, and how; the last word on one counts."""
    if "host files" not in outside.without:
        for path in outside.view:
            yield path, "--ro-bind"
    for path in (*command.readable, outside.channel.parent):
        yield path, "--bind" if "read-only mounts" in outside.without else "--ro-bind"
    for path in command.writable:
        yield path, "--bind"


def _ways(paths: Iterable[Path]) -> list[str]:
    """Folders on the way to what is shown, open to all: bubblewrap's own would be closed to a changed user."""
    ways = dict.fromkeys(way for path in paths for way in reversed(path.parents) if way != Path("/"))
    return [word for way in ways for word in ("--perms", "0755", "--dir", str(way))]


def _inner(command: Command, outside: Outside) -> list[str]:
    given = {**command.env, "RATCHET_CHANNEL": str(outside.channel)}
    keep = [] if "environment" in outside.without else ["-i"]
    # the folder is entered last: it may be closed to all but the user that the command becomes
    told = [
        "/usr/bin/env",
        *keep,
        f"--chdir={command.cwd}",
        *(f"{name}={value}" for name, value in given.items()),
        *command.argv,
    ]
    if outside.uid is None or outside.setpriv is None or "user" in outside.without:
        return told
    who = [f"--reuid={outside.uid}", f"--regid={outside.uid}"]
    who.append(f"--groups={','.join(map(str, outside.groups))}" if outside.groups else "--clear-groups")
    rights = [] if "capabilities" in outside.without else counters.rights(granted=outside.counters)
    return [str(outside.setpriv), *who, *rights, "--no-new-privs", "--", *told]
