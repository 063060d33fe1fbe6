"""Start one command the way it was ordered: fork, isolate, give up every right, exec.

Refuses to improvise: what the order asks for happens, or `LaunchFailure` says which stage failed and why.
Standard library only: it runs inside the supervisor.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, NoReturn

from sandbox.kernel import isolation
from sandbox.supervision.watching import SPARE_TASKS


class Order(NamedTuple):
    """One command with everything decided. The host writes it as JSON, the supervisor reads it."""

    host_pid: int
    argv: list[str]
    cwd: str
    env: dict[str, str]
    cpus: list[int] | None = None
    memory_bytes: int | None = None
    processes: int | None = None
    output_bytes: int = 16 << 20
    disk_bytes: int | None = None
    writable: Sequence[str] = ()
    memory_events: str | None = None
    queue: str | None = None  # where the kernel tells of the agent's end of the channel
    file_bytes: int | None = None
    namespaces: str = "none"  # "direct" (as root), "user" (inside a user namespace) or "none"
    pid_namespace: bool = False
    join: Sequence[str] = ()  # cgroup.procs files of the control groups to enter
    litter: Sequence[str] = ()  # files and folders to remove, in this order, when the agent is gone and cannot
    uid: int | None = None  # a separate user, whose group has the same number
    groups: Sequence[int] = ()
    contains: bool = False  # it is a program that contains the command: it needs our rights, and tells of signals
    becomes: int | None = None  # the user whom that program makes of it


class Launched(NamedTuple):
    """A running command. `init` is process 1 of its pid namespace, where it has one."""

    child: int  # our child: `init`, else the command itself
    init: int | None
    output: int  # reads its stdout and stderr
    status: int | None  # where `init` writes how the command ended


class LaunchFailure(Exception):
    """`stage` is one of: group, namespaces, pid namespace, user, resource limits, cpus, folder, exec."""

    def __init__(self, stage: str, error_number: int, text: str) -> None:
        super().__init__(f"{stage}: {text}")
        self.stage, self.error_number, self.text = stage, error_number, text


@contextmanager
def _stage(name: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise LaunchFailure(name, getattr(error, "errno", None) or 0, str(error)) from error


def launch(order: Order) -> Launched:
    """Start it; returns when the command has been executed. Raises: LaunchFailure."""
    with _stage("group"):
        joins = [os.open(path, os.O_WRONLY) for path in order.join]
    if order.namespaces != "none":
        with _stage("namespaces"):
            if order.namespaces == "user":
                isolation.enter_user_namespace()
            isolation.enter_network_namespace()
    if order.pid_namespace:
        with _stage("pid namespace"):
            isolation.next_child_leads_pid_namespace()
    output, output_end = os.pipe()
    failure, failure_end = os.pipe()
    status, status_end = os.pipe() if order.pid_namespace else (None, None)
    child = os.fork()
    if child == 0:
        os.close(failure)  # only the supervisor reads it, so its writer can tell whether the supervisor lives
        try:
            if status_end is not None:
                _lead_pid_namespace(order, joins, output_end, failure_end, status_end)
            _become(order, joins, output_end, failure_end)
        except LaunchFailure as error:
            _tell(failure_end, error)
        finally:
            os._exit(127)
    for descriptor in (output_end, failure_end, *joins, *([] if status_end is None else [status_end])):
        os.close(descriptor)
    _raise_if_told(failure, child)
    return Launched(child, child if order.pid_namespace else None, output, status)


def _tell(failure_end: int, error: LaunchFailure) -> None:
    os.write(failure_end, json.dumps([error.stage, error.error_number, error.text[:1000]]).encode())


def _raise_if_told(failure: int, child: int) -> None:
    """Read until every copy of the other end is closed, which the exec of the command does."""
    parts = []
    while part := os.read(failure, 4096):
        parts.append(part)
    os.close(failure)
    if parts:
        os.waitpid(child, 0)
        raise LaunchFailure(*json.loads(b"".join(parts)))


def _die_with_supervisor(failure_end: int) -> None:
    isolation.die_with_parent(signal.SIGKILL)
    poll = select.poll()
    poll.register(failure_end, 0)
    if poll.poll(0):  # nobody reads any more: it ended before it was asked to take us along
        os._exit(127)


def _lead_pid_namespace(order: Order, joins: list[int], output_end: int, failure_end: int, status_end: int) -> NoReturn:
    """Process 1: starts the command, buries orphans, says how the command ended, and by ending ends all others."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    _die_with_supervisor(failure_end)
    with _stage("pid namespace"):
        isolation.see_only_own_processes()
    closed, go = os.pipe()
    with _stage("exec"):
        command = os.fork()
    if command == 0:
        try:
            os.close(status_end)
            os.read(closed, 1)  # no code of the command's runs before this process is closed to it
            _become(order, joins, output_end, failure_end)
        except LaunchFailure as error:
            _tell(failure_end, error)
        finally:
            os._exit(127)
    isolation.close_to_tracers()
    os.write(go, b"x")
    _keep_only(status_end)
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == command:
            os.write(status_end, str(status).encode())
            os._exit(0)


def _keep_only(*kept: int) -> None:
    for descriptor in [int(entry.name) for entry in os.scandir("/proc/self/fd")]:
        if descriptor not in kept:
            try:
                os.close(descriptor)
            except OSError:
                continue  # the one that listed the folder


def _become(order: Order, joins: list[int], output_end: int, failure_end: int) -> NoReturn:
    """Turn this process into the command. Raises: LaunchFailure."""
    os.setsid()  # a signal to its process group must not reach the supervisor
    _die_with_supervisor(failure_end)
    with _stage("group"):
        for descriptor in joins:
            os.write(descriptor, b"0")
    with _stage("resource limits"):
        _set_limits(order)
    if order.cpus is not None:
        with _stage("cpus"):
            os.sched_setaffinity(0, order.cpus)
    with _stage("user"):
        isolation.leave_keyring()
        _give_up_rights(order)
    _die_with_supervisor(failure_end)  # the change of user has cleared it
    with _stage("folder"):
        os.chdir(order.cwd)
    with _stage("exec"):
        _wire_up(output_end, failure_end)
        os.execvpe(order.argv[0], order.argv, order.env)
    raise AssertionError("exec returned")


def _set_limits(order: Order) -> None:
    os.umask(0o022 if order.contains else 0o077)  # the folders on the way to what it shows must be passed through
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if order.file_bytes is not None:
        _limit(resource.RLIMIT_FSIZE, order.file_bytes)
    if (order.uid is not None or order.becomes is not None) and order.processes is not None:
        # counted per user, so it means nothing for a user who has other processes
        _limit(resource.RLIMIT_NPROC, order.processes + SPARE_TASKS)


def _limit(kind: int, wanted: int) -> None:
    """No more than whoever started the agent allows, which only root could raise again."""
    allowed = resource.getrlimit(kind)[1]
    most = wanted if allowed == resource.RLIM_INFINITY else min(wanted, allowed)
    resource.setrlimit(kind, (most, most))


def _give_up_rights(order: Order) -> None:
    if order.contains:
        return
    isolation.drop_privileges()
    if order.uid is not None:
        os.setgroups(order.groups)
        os.setresgid(order.uid, order.uid, order.uid)
        os.setresuid(order.uid, order.uid, order.uid)


def _wire_up(output_end: int, failure_end: int) -> None:
    """Nothing to read, one pipe to write to, and no other descriptor: the one that tells of failures closes on exec."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # Python ignores them, and that would be inherited
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output_end, 1)
    os.dup2(output_end, 2)
    _keep_only(0, 1, 2, failure_end)
