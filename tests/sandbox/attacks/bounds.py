"""Checks that a command cannot use up the machine, and that nothing of it stays: limits, endings, what is left.

Does not try without end: what no limit stops takes a few hundred MiB at most, and gives it back.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from sandbox.contract import Ended, Limits
from tests.sandbox.attacks.bench import Bench, Check, checks_in, claim

_MIB = 1 << 20
_PROCESSES, _MANY = 48, 400
_KERNELS_SPARE = 80  # the kernel's limit lies a little above ours, so that ours is met first
_FAST_S = 2.0  # for another program to start meanwhile: it takes milliseconds


def _ended_by(reason: str, found: Ended | str) -> str | None:
    if isinstance(found, str):
        return found
    return None if found.reason == reason else f"it was ended otherwise: {found.reason}"


def _ended_for_memory(found: Ended | str) -> str | None:
    if isinstance(found, Ended) and (found.reason, found.signal) == ("signal", signal.SIGKILL):
        return None  # by the kernel, which not everybody who watches is told in time
    return _ended_by("memory limit", found)


@claim("a fork bomb is ended, and the machine answers meanwhile", "process limit")
def fork_bomb(bench: Bench) -> str | None:
    guest = bench.start(Limits(processes=_PROCESSES))
    guest.tell("fork", count=_MANY, counted=str(guest.kept / "counted"))
    started = time.monotonic()
    subprocess.run(["/bin/true"], check=True)
    took_s = time.monotonic() - started
    slow = f"starting a program took {took_s:.1f} s meanwhile" if took_s > _FAST_S else None
    return _ended_by("process limit", guest.end()) or slow


@claim("the kernel holds a fork bomb back before anybody looks", "process limit by the kernel")
def fork_burst(bench: Bench) -> str | None:
    guest = bench.start(Limits(processes=_PROCESSES))
    guest.tell("fork", count=_MANY, counted=str(guest.kept / "counted"))
    guest.end()
    got = int((guest.kept / "counted").read_text())
    return f"it had {got} children at a limit of {_PROCESSES}" if got > _PROCESSES + _KERNELS_SPARE else None


@claim("memory beyond the limit ends it", "memory limit")
def memory(bench: Bench) -> str | None:
    guest = bench.start(Limits(memory_bytes=96 * _MIB))
    guest.tell("hold_memory", mib=256)
    return _ended_for_memory(guest.end())


@claim("memory that no process maps counts as well", "memory limit on everything")
def hidden_memory(bench: Bench) -> str | None:
    guest = bench.start(Limits(memory_bytes=96 * _MIB))
    guest.tell("hold_memory_in_files", mib=256)
    return _ended_for_memory(guest.end())


@claim("a command goes no further when the kernel has ended a part of it for its memory", "memory limit on everything")
def memory_of_child(bench: Bench) -> str | None:
    guest = bench.start(Limits(memory_bytes=96 * _MIB))
    guest.tell("hold_memory_in_files", mib=256, in_child=True)
    return _ended_by("memory limit", guest.end())


def _disk(name: str, how: str) -> Check:
    def run(bench: Bench) -> str | None:
        guest = bench.start(Limits(disk_bytes=8 * _MIB))
        guest.tell("hold_disk", folder=str(guest.kept), mib=64, how=how)
        return _ended_by("disk limit", guest.end())

    return Check(name, "disk limit", run)


disk = _disk("filling its folder beyond the limit ends it", "files")
disk_deep = _disk("files below more folders than a path can name count as well", "deep")
disk_at_once = _disk("space that it takes at once, without writing, counts as well", "at once")
disk_empty = _disk("empty files count as well", "empty")


@claim("files without a name end it when the disk's free space falls under the floor", "floor of the disk")
def disk_without_names(bench: Bench) -> str | None:
    floor = shutil.disk_usage(bench.folder).free - 48 * _MIB  # what others free meanwhile is hardly as much
    guest = bench.start(Limits(free_disk_bytes=floor))
    guest.tell("hold_disk", folder=str(guest.kept), mib=192, how="unlinked")
    return _ended_by("disk limit", guest.end())


@claim("a file cannot grow beyond the limit", "file size limit")
def file_size(bench: Bench) -> str | None:
    guest = bench.start(Limits(file_bytes=_MIB))
    guest.ask("write_file", path=str(guest.kept / "large"), mib=4)
    size = (guest.kept / "large").stat().st_size
    return f"it has {size} bytes at a limit of {_MIB}" if size > _MIB else None


def _scratch(folder: str) -> Check:
    def run(bench: Bench) -> str | None:
        guest = bench.start(Limits(tmp_bytes=8 * _MIB, shm_bytes=8 * _MIB))
        written = guest.ask("write_file", path=f"{folder}/ratchet-check-{bench.token}", mib=24, stays=False)
        if written < 4 * _MIB:
            return f"only {written} bytes could be written, where 8 MiB were given"
        return f"{written} bytes could be written, where 8 MiB were given" if written > 8 * _MIB else None

    return Check(f"{folder} is its own, and no larger than it was given", "bounded scratch", run)


tmp, shm = _scratch("/tmp"), _scratch("/dev/shm")


@claim("a flood of output ends it", "output limit")
def output(bench: Bench) -> str | None:
    guest = bench.start(Limits(output_bytes=_MIB))
    guest.tell("print_much", mib=32)
    return _ended_by("output limit", guest.end())


@claim("a crash leaves no memory dump", "no core dumps")
def core_dump(bench: Bench) -> str | None:
    guest = bench.start()
    most = guest.ask("crash_in", folder=str(guest.kept))
    if left := os.listdir(guest.kept):
        return f"it left {', '.join(left)}"
    return None if most == 0 else "no limit forbids it one"  # which this machine may keep elsewhere


@claim("stopping it ends children in sessions of their own, whose parents are gone", "ends whole tree")
def orphans(bench: Bench) -> str | None:
    guest = bench.start()
    guest.ask("leave_children")
    if len(guest.processes()) < 2:
        return "its processes are not seen from outside"
    guest.process.stop()
    left = guest.processes()
    return f"{len(left)} of its processes went on" if left else None


@claim("nothing of it is left: no process, no channel, no record, no group, no container", "nothing left behind")
def leftovers(bench: Bench) -> str | None:
    guest = bench.start()
    variables = guest.ask("read", paths=["/proc/self/environ"])["/proc/self/environ"].split("\0")
    channel = Path(next(line for line in variables if line.startswith("RATCHET_CHANNEL="))[16:])
    groups = {folder for task in guest.process.usage().tasks for folder in _groups_of(task.pid)}
    guest.process.stop()
    left = [str(path) for path in (channel, channel.parent, *groups) if path.exists()]
    left += [str(path) for path in channel.parent.parent.rglob(f"*{channel.parent.name}*")]
    left += [f"process {pid}" for pid in guest.processes()]
    left += _containers(guest.name) if bench.sandbox.name == "docker" else []
    return f"there is still {', '.join(left[:3])}" if left else None


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
