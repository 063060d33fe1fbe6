"""Prepare everything one command needs on this machine and start it; undo all of it when anything fails.

Refuses to decide how it is isolated: that is the plan's.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sandbox.contract import Command
from sandbox.errors import DiskFull, SandboxError, Unusable, means_disk_full
from sandbox.kernel import cgroup, freezer
from sandbox.kernel.freezer import CgroupFreezer, Freezer
from sandbox.local.plan import Plan
from sandbox.supervision import spawner, user_ids
from sandbox.supervision.launch import Order
from sandbox.supervision.process import SupervisedProcess
from sandbox.supervision.records import Filed, Identity, Record

_LONGEST_SOCKET_PATH = 100  # the kernel takes 107 bytes


@dataclass(frozen=True)
class Place:
    """Where commands of one sandbox are started from; see `LocalSandbox`."""

    scratch: Path
    owned: tuple[Path, ...]
    connect_timeout_s: float

    @property
    def records(self) -> Path:
        return self.scratch / "records"

    def make(self, plan: Plan) -> None:
        self.scratch.mkdir(parents=True, exist_ok=True)
        # a separate user must pass through, but not list: the folders inside have unguessable names and are closed
        self.scratch.chmod(0o711 if plan.users else 0o700)
        self.records.mkdir(mode=0o700, exist_ok=True)


def start(command: Command, plan: Plan, place: Place, uid: int | None) -> SupervisedProcess:
    """Raises: DiskFull; Unusable; SandboxError."""
    name = f"ratchet-{os.getpid()}-{secrets.token_hex(8)}"
    with disk_errors(f"starting {command.role}"), contextlib.ExitStack() as undo:
        place.make(plan)
        folder = _private_folder(place.scratch, name)
        undo.callback(shutil.rmtree, folder, ignore_errors=True)
        listener = _listen(folder, uid)
        undo.callback(listener.close)
        device_groups = () if uid is None else user_ids.device_groups()
        if uid is not None:
            user_ids.hand_over(uid, device_groups, command, place.owned)
        chosen = _freezer(name, plan)
        undo.callback(chosen.close)
        cpuset = _cpuset(name, chosen, command.cpus) if plan.cpusets else None
        if cpuset is not None:
            undo.callback(cpuset.close)
        join = list(dict.fromkeys((*chosen.join, *([] if cpuset is None else [cpuset.join_file]))))
        filed = _file(place.records / f"{name}.json", command.role, folder, join)
        undo.callback(filed.forget)
        order = _order(command, plan, filed, join, uid, device_groups)
        supervisor, started = spawner.start(order, filed.log)
        filed = filed.naming(supervisor.pid)
        process = SupervisedProcess(
            command.role, supervisor, started.init, listener, chosen, cpuset, filed, place.connect_timeout_s
        )
        undo.pop_all()
        undo.callback(process.stop)  # until what is needed to end it later is on the disk
        filed.write()
        undo.pop_all()
        return process


def _private_folder(scratch: Path, name: str) -> Path:
    folder = scratch / name
    if len(os.fsencode(folder / "channel")) > _LONGEST_SOCKET_PATH:
        return Path(tempfile.mkdtemp(prefix="ratchet-"))
    folder.mkdir(mode=0o700)
    return folder


def _listen(folder: Path, uid: int | None) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(folder / "channel"))
        listener.listen(1)
        if uid is not None:
            user_ids.give(folder, uid)
    except OSError:
        listener.close()
        raise
    return listener


def _freezer(name: str, plan: Plan) -> Freezer:
    try:
        return freezer.choose(name, groups=plan.groups)
    except OSError as error:
        raise Unusable("groups", f"no control group can be made: {error.strerror or error}") from error


def _cpuset(name: str, chosen: Freezer, cpus: tuple[int, ...] | None) -> cgroup.CpuSet:
    """A CPU set for a command, holding `cpus`, in whichever hierarchy has the controller."""
    cpuset = chosen.group.cpuset if isinstance(chosen, CgroupFreezer) else None
    home = cgroup.cpuset_home()
    try:
        if cpuset is None and home is not None:
            cpuset = cgroup.CpuSet.create(home / name)
        if cpuset is not None and cpus is not None:
            cpuset.allow(cpus)
    except OSError as error:
        if cpuset is not None:
            cpuset.close()
        raise Unusable("cpusets", f"no CPU set can be made: {error.strerror or error}") from error
    if cpuset is None:
        raise Unusable("cpusets", "no cpuset controller is there for us")
    return cpuset


def _file(path: Path, role: str, folder: Path, join: list[Path]) -> Filed:
    agent = Identity.of(os.getpid())
    assert agent is not None
    groups = tuple(file.parent for file in join)
    filed = Filed(path, Record(role=role, agent=agent, folder=folder, channel=str(folder / "channel"), groups=groups))
    filed.write()
    return filed


def _order(
    command: Command, plan: Plan, filed: Filed, join: list[Path], uid: int | None, groups: tuple[int, ...]
) -> Order:
    limits = command.limits
    return Order(
        host_pid=os.getpid(),
        argv=list(command.argv),
        cwd=str(command.cwd),
        env={**command.env, "RATCHET_CHANNEL": filed.record.channel},
        cpus=None if command.cpus is None else list(command.cpus),
        memory_bytes=limits.memory_bytes,
        processes=limits.processes,
        output_bytes=limits.output_bytes,
        file_bytes=limits.file_bytes,
        namespaces=plan.namespaces,
        pid_namespace=plan.pid_namespace,
        join=[str(file) for file in join],
        litter=[str(path) for path in (filed.record.channel, filed.record.folder, filed.log, filed.path)],
        uid=uid,
        groups=groups,
    )


@contextlib.contextmanager
def disk_errors(doing: str) -> Iterator[None]:
    """Raises: DiskFull, SandboxError instead of OSError."""
    hint = "Free some space; nothing already proven is lost."
    try:
        yield
    except Unusable as failure:
        if means_disk_full(failure.error_number):
            raise DiskFull(failure.message, hint=hint) from failure
        raise
    except OSError as error:
        if means_disk_full(error.errno):
            raise DiskFull(f"the disk is full while {doing}: {error}", hint=hint) from error
        raise SandboxError(f"{doing} failed: {error}") from error
