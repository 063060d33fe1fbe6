"""What bubblewrap is told: which namespaces, which folders, and who the command is.

No setting that a promise depends on is left to its defaults.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sandbox import counters
from sandbox.contract import Command
from sandbox.kernel import isolation


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


def argv(command: Command, outside: Outside) -> list[str]:
    return [str(outside.program), *_isolation(outside), *_folders(command, outside), "--", *_inner(command, outside)]


def _isolation(outside: Outside) -> list[str]:
    told = ["--die-with-parent", "--new-session", "--unshare-uts", "--hostname", "sandbox", "--unshare-cgroup-try"]
    told += ["--unshare-net", "--unshare-ipc", "--unshare-pid"]
    if outside.uid is None:
        return [*told, "--unshare-user", "--disable-userns"]
    kept = (*isolation.TO_CHANGE_USER, *((counters.CAPABILITY,) if outside.counters else ()))
    return [*told, "--cap-drop", "ALL", *(word for name in kept for word in ("--cap-add", name))]


def _folders(command: Command, outside: Outside) -> list[str]:
    told = ["--proc", "/proc", "--dev", "/dev"]
    for scratch, size in (("/tmp", command.limits.tmp_bytes), ("/dev/shm", command.limits.shm_bytes)):
        told += ["--perms", "1777", "--size", str(size), "--tmpfs", scratch]
    given = dict(_given(command, outside))
    told += [*_ways(given), "--ro-bind", "/sys", "/sys"]
    if Path("/sys/fs/cgroup").is_dir():  # they tell of what else runs here
        told += ["--perms", "0555", "--size", "4096", "--tmpfs", "/sys/fs/cgroup", "--remount-ro", "/sys/fs/cgroup"]
    # what lies in another comes after it, or would be hidden by it: a folder to read in one to write stays read-only
    for path, how in sorted(given.items(), key=lambda each: len(each[0].parts)):
        told += [how, str(path), str(path)]
    for device in outside.devices:
        told += ["--dev-bind", str(device), str(device)]
    # without root the user owns both, and they are in memory that no limit bounds
    return [*told, "--remount-ro", "/", "--remount-ro", "/dev", "--chdir", "/"]


def _given(command: Command, outside: Outside) -> Iterable[tuple[Path, str]]:
    """Every path that is shown, and how; the last word on one counts."""
    for path in (*outside.view, *command.readable, outside.channel.parent):
        yield path, "--ro-bind"
    for path in command.writable:
        yield path, "--bind"


def _ways(paths: Iterable[Path]) -> list[str]:
    """Folders on the way to what is shown, open to all: bubblewrap's own would be closed to a changed user."""
    ways = dict.fromkeys(way for path in paths for way in reversed(path.parents) if way != Path("/"))
    return [word for way in ways for word in ("--perms", "0755", "--dir", str(way))]


def _inner(command: Command, outside: Outside) -> list[str]:
    variables = [f"{name}={value}" for name, value in {**command.env, "RATCHET_CHANNEL": str(outside.channel)}.items()]
    # the folder is entered last: it may be closed to all but the user that the command becomes
    told = ["/usr/bin/env", "-i", f"--chdir={command.cwd}", *variables, *command.argv]
    if outside.uid is None or outside.setpriv is None:
        return told
    who = [f"--reuid={outside.uid}", f"--regid={outside.uid}"]
    who.append(f"--groups={','.join(map(str, outside.groups))}" if outside.groups else "--clear-groups")
    return [str(outside.setpriv), *who, *counters.rights(granted=outside.counters), "--no-new-privs", "--", *told]
