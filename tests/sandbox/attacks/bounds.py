"""Checks that a command cannot use up the machine, and that nothing of it stays: limits, endings, what is left.

What no limit stops takes a few hundred MiB at most, and gives it back.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from sandbox.contract import Ended, Limits
from tests.sandbox.attacks.bench import Bench, Check, Guest, checks_in, claim

_MIB = 1 << 20
_PROCESSES, _MANY = 48, 400
_KERNELS_SPARE = 80  # the kernel's limit lies a little above ours, so that ours is met first
_FAST_S = 2.0  # for another program to start meanwhile: it takes milliseconds


def _otherwise(reason: str, found: Ended | str) -> object:
    """How it ended, unless it was for this reason."""
    if isinstance(found, str):
        return found
    # memory: by the kernel, which is not told in time to everybody who watches
    killed = reason == "memory limit" and (found.reason, found.signal) == ("signal", signal.SIGKILL)
    return not (killed or found.reason == reason) and f"it was ended otherwise: {found.reason}"


def _ends(name: str, promise: str, reason: str, attack: str, limits: dict[str, int], **arguments: Any) -> Check:
    """The claim that a guest with these limits is ended for this reason over an attack."""

    def run(bench: Bench) -> object:
        guest = bench.start(Limits(**limits))
        folder = {"folder": str(guest.kept)} if attack == "hold_disk" else {}
        guest.tell(attack, **arguments, **folder)
        return _otherwise(reason, guest.end())

    return Check(name, promise, run)


def _bomb(bench: Bench) -> Guest:
    guest = bench.start(Limits(processes=_PROCESSES))
    guest.tell("fork", count=_MANY, counted=str(guest.kept / "counted"))
    return guest


@claim("a fork bomb is ended, and the machine answers meanwhile", "process limit")
def fork_bomb(bench: Bench) -> object:
    guest = _bomb(bench)
    started = time.monotonic()
    subprocess.run(["/bin/true"], check=True)
    took_s = time.monotonic() - started
    return _otherwise("process limit", guest.end()) or (took_s > _FAST_S and f"a program took {took_s:.1f} s to start")


@claim("the kernel holds a fork bomb back before anybody looks", "process limit by the kernel")
def fork_burst(bench: Bench) -> object:
    guest = _bomb(bench)
    guest.end()
    got = int((guest.kept / "counted").read_text())
    return got > _PROCESSES + _KERNELS_SPARE and f"it had {got} children at a limit of {_PROCESSES}"


_AT_96_MIB = {"memory_bytes": 96 * _MIB}
memory = _ends("memory beyond the limit ends it", "memory limit", "memory limit", "hold_memory", _AT_96_MIB, mib=256)
hidden_memory = _ends(
    "memory that no process maps counts as well",
    "memory limit on everything",
    "memory limit",
    "hold_memory_in_files",
    _AT_96_MIB,
    mib=256,
)


@claim("a command goes no further when the kernel has ended a part of it for its memory", "memory limit on everything")
def memory_of_child(bench: Bench) -> object:
    guest = bench.start(Limits(**_AT_96_MIB))
    guest.tell("hold_memory_in_files", mib=256, in_child=True)
    found = guest.end()
    return found if isinstance(found, str) else found.reason != "memory limit" and found.reason


def _disk(name: str, how: str) -> Check:
    return _ends(name, "disk limit", "disk limit", "hold_disk", {"disk_bytes": 8 * _MIB}, mib=64, how=how)


disk = _disk("filling its folder beyond the limit ends it", "files")
disk_deep = _disk("files below more folders than a path can name count as well", "deep")
disk_at_once = _disk("space that it takes at once, without writing, counts as well", "at once")
disk_empty = _disk("empty files count as well", "empty")


@claim("files without a name end it when the disk's free space falls under the floor", "floor of the disk")
def disk_without_names(bench: Bench) -> object:
    floor = shutil.disk_usage(bench.folder).free - 48 * _MIB  # what others free meanwhile is hardly as much
    guest = bench.start(Limits(free_disk_bytes=floor))
    guest.tell("hold_disk", folder=str(guest.kept), mib=192, how="unlinked")
    return _otherwise("disk limit", guest.end())


@claim("a file cannot grow beyond the limit", "file size limit")
def file_size(bench: Bench) -> object:
    guest = bench.start(Limits(file_bytes=_MIB))
    guest.ask("write_file", path=str(guest.kept / "large"), mib=4)
    size = (guest.kept / "large").stat().st_size
    return size > _MIB and f"it has {size} bytes at a limit of {_MIB}"


def _scratch(folder: str) -> Check:
    def run(bench: Bench) -> object:
        guest = bench.start(Limits(tmp_bytes=8 * _MIB, shm_bytes=8 * _MIB))
        written = guest.ask("write_file", path=f"{folder}/ratchet-check-{bench.token}", mib=24, stays=False)
        return not 4 * _MIB <= written <= 8 * _MIB and f"{written} bytes could be written, where 8 MiB were given"

    return Check(f"{folder} is its own, and no larger than it was given", "bounded scratch", run)


tmp, shm = _scratch("/tmp"), _scratch("/dev/shm")
output = _ends(
    "a flood of output ends it", "output limit", "output limit", "print_much", {"output_bytes": _MIB}, mib=32
)


@claim("a crash leaves no memory dump", "no core dumps")
def core_dump(bench: Bench) -> object:
    guest = bench.start()
    most = guest.ask("crash_in", folder=str(guest.kept))  # the limit: this machine may keep dumps elsewhere
    return os.listdir(guest.kept) or (most != 0 and "no limit forbids it one")


@claim("stopping it ends children in sessions of their own, whose parents are gone", "ends whole tree")
def orphans(bench: Bench) -> object:
    guest = bench.start()
    guest.ask("leave_children")
    if len(guest.processes()) < 2:
        return "its processes are not seen from outside"
    guest.process.stop()
    left = guest.processes()
    return left and f"{len(left)} of its processes went on"


@claim("nothing of it is left: no process, no channel, no record, no group, no container", "nothing left behind")
def leftovers(bench: Bench) -> object:
    guest = bench.start()
    channel = Path(guest.variables()["RATCHET_CHANNEL"])
    groups = {folder for task in guest.process.usage().tasks for folder in _groups_of(task.pid)}
    guest.process.stop()
    left = [str(path) for path in (channel, channel.parent, *groups) if path.exists()]
    left += [str(path) for path in channel.parent.parent.rglob(f"*{channel.parent.name}*")]
    left += [f"process {pid}" for pid in guest.processes()]
    left += _containers(guest.name) if bench.sandbox.name == "docker" else []
    return left and f"there is still {left}"


def _containers(role: str) -> list[str]:
    from sandbox.docker.engine import Engine  # which loads the SDK of an engine that others need not have

    return [f"container {found[:12]}" for found, labels in Engine().labelled() if labels["ratchet.role"] == role]


def _groups_of(pid: int) -> set[Path]:
    """The control groups of a process that the agent is not in itself."""
    found = []
    for name in (str(pid), "self"):
        lines = (line.split(":", 2) for line in Path(f"/proc/{name}/cgroup").read_text().splitlines())
        found.append({(controllers or "unified", path.lstrip("/")) for _, controllers, path in lines})
    places = {Path("/sys/fs/cgroup", name, path) for name, path in found[0] - found[1]}
    places |= {Path("/sys/fs/cgroup", path) for name, path in found[0] - found[1] if name == "unified"}
    return {place for place in places if place.exists()}


CHECKS = checks_in(globals())
