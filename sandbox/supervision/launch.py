"""Start one command the way it was ordered: fork, give up every right, exec.

What the order asks for happens, or `LaunchFailure` says which stage failed and why. Standard library only: it runs
inside the supervisor.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

from sandbox.kernel import isolation
from sandbox.supervision.watching import SPARE_TASKS


class Order(NamedTuple):
    """One command with everything decided. The host writes it as JSON, the supervisor reads it."""

    host_pid: int
    argv: list[str]
    cwd: str
    env: dict[str, str]
    bounds: Sequence[Any]  # the fields of `watching.Bounds`
    cpus: list[int] | None = None
    file_bytes: int | None = None
    processes: int | None = None
    join: Sequence[str] = ()  # cgroup.procs files of the control groups to enter
    litter: Sequence[str] = ()  # files and folders to remove, in this order, when the agent is gone and cannot
    uid: int | None = None  # a separate user, whose group has the same number
    groups: Sequence[int] = ()
    contains: bool = False  # it is a program that contains the command: it needs our rights, and tells of signals


class LaunchFailure(Exception):
    """`stage` is one of: group, user, resource limits, cpus, folder, exec."""

    def __init__(self, stage: str, error_number: int, text: str) -> None:
        super().__init__(f"{stage}: {text}")
        self.stage, self.error_number, self.text = stage, error_number, text


@contextmanager
def _stage(name: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise LaunchFailure(name, getattr(error, "errno", None) or 0, str(error)) from error


def launch(order: Order) -> tuple[int, int]:
    """Start it; returns once it is executed: its process, and a descriptor that reads its stdout and stderr.

    Raises: LaunchFailure.
    """
    with _stage("group"):
        joins = [os.open(path, os.O_WRONLY) for path in order.join]
    output, output_end = os.pipe()
    failure, failure_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(failure)  # only the supervisor reads it, so its writer can tell whether the supervisor lives
        try:
            _become(order, joins, output_end, failure_end)
        except LaunchFailure as error:
            os.write(failure_end, json.dumps([error.stage, error.error_number, error.text[:1000]]).encode())
        finally:
            os._exit(127)
    for descriptor in (output_end, failure_end, *joins):
        os.close(descriptor)
    _raise_if_told(failure, child)
    return child, output


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
    if order.processes is not None:
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
    for descriptor in [int(entry.name) for entry in os.scandir("/proc/self/fd")]:
        if descriptor not in (0, 1, 2, failure_end):
            try:
                os.close(descriptor)
            except OSError:
                continue  # the one that listed the folder
