"""Prepare everything one command needs on this machine and start it; undo all of it when anything fails.

Refuses to decide how it is isolated: that is the plan's.
"""

from __future__ import annotations

import contextlib
import os

from sandbox import counters
from sandbox.contract import Command
from sandbox.devices.access import Access
from sandbox.local.plan import Plan
from sandbox.supervision import control_groups, spawner, user_ids
from sandbox.supervision.control_groups import ControlGroups
from sandbox.supervision.launch import Order
from sandbox.supervision.preparing import Place, Prepared, disk_errors, fresh_name, prepare
from sandbox.supervision.process import SupervisedProcess, Tree
from sandbox.supervision.records import Identity


def start(command: Command, plan: Plan, place: Place, access: Access, uid: int | None) -> SupervisedProcess:
    """Raises: DiskFull; Unusable; SandboxError."""
    name = fresh_name()
    if counters.grant_needed(command.counters):
        raise counters.cannot_grant("local grants no rights")
    with disk_errors(f"starting {command.role}"), contextlib.ExitStack() as undo:
        place.make(for_others=plan.users)
        if uid is not None:
            user_ids.hand_over(uid, access.groups, command, place.owned)
        groups = control_groups.make(name, command, plan.control_groups)
        undo.callback(groups.close)
        prepared = prepare(name, command, place, uid, undo, groups.folders)
        order = _order(command, plan, prepared, groups, access, uid)
        supervisor, started = spawner.start(order, prepared.filed.log)
        filed = prepared.filed.naming(supervisor.pid)
        ours = [] if started.init is None else [started.init]
        tree = Tree(Identity.of_living(supervisor.pid), frozenset(ours))
        process = SupervisedProcess(
            command.role,
            supervisor,
            tree,
            prepared.listener,
            groups,
            filed,
            place.connect_timeout_s,
            own_uid=uid,
        )
        undo.pop_all()
        undo.callback(process.stop)  # until what is needed to end it later is on the disk
        filed.write()
        undo.pop_all()
        return process


def _order(
    command: Command,
    plan: Plan,
    prepared: Prepared,
    groups: ControlGroups,
    access: Access,
    uid: int | None,
) -> Order:
    limits = command.limits
    return Order(
        host_pid=os.getpid(),
        argv=list(command.argv),
        cwd=str(command.cwd),
        env={**access.merged(command.env), "RATCHET_CHANNEL": prepared.filed.record.channel},
        cpus=None if command.cpus is None else list(command.cpus),
        memory_bytes=limits.memory_bytes,
        processes=limits.processes,
        output_bytes=limits.output_bytes,
        disk_bytes=limits.disk_bytes,
        writable=[str(folder) for folder in command.writable],
        memory_events=None if groups.memory_events is None else str(groups.memory_events),
        file_bytes=limits.file_bytes,
        namespaces=plan.namespaces,
        pid_namespace=plan.pid_namespace,
        join=[str(file) for file in groups.join],
        litter=prepared.litter,
        queue=prepared.queue,
        uid=uid,
        groups=() if uid is None else access.groups,
    )
