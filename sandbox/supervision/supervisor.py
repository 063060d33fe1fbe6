"""Stand between the agent and one command: start it, drain its output, watch its limits, end all of it, say how.

Does not outlive the agent, or leave anything behind when it ends itself. A script for the agent's own
interpreter: it reads one `Order` as a line from stdin, and writes JSON lines to the descriptor named by its only
argument: {"started": …} or {"failed": …}, then {"ended": …}, which the agent confirms with another line on stdin.
Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

if __name__ == "__main__":  # started without any search path but the standard library's
    sys.path.append(str(Path(__file__).resolve().parents[2]))

from sandbox.kernel import ending, isolation, process_tree
from sandbox.supervision.watching import SPARE_TASKS, Bounds, LimitWatch, Output, Signals, watch


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


@contextlib.contextmanager
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


def supervise(order: Order, child: int, output: Output, signals: Signals) -> dict[str, Any]:
    """Watch until it ends or must end; then end the rest. Returns the fields of `Ended` and `cpu_time_s`."""
    bounds = Bounds(*order.bounds)
    limits = LimitWatch(bounds, lambda: process_tree.descendants_quickly(os.getpid()))
    ended: dict[int, int] = {}

    def is_over() -> bool:
        ended.update(ending.bury() or {})
        return child in ended

    reason = watch(bounds, output, limits, signals, is_over)
    _kill_groups(order)
    ended = {**ending.end_our_descendants(uid=order.uid), **ended}
    output.drain()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    # without a status it is stuck in a driver: it has been sent a SIGKILL and will follow it some day
    code = os.waitstatus_to_exitcode(ended[child]) if child in ended else -signal.SIGKILL
    if order.contains and code > 128:
        code = 128 - code  # what contains the command tells of its signal so
    return {
        "status": code if code >= 0 else None,
        "signal": -code if code < 0 else None,
        "reason": reason or ("signal" if code < 0 else "exited"),
        "output_tail": output.tail(),
        "output_bytes": output.count,
        "cpu_time_s": used.ru_utime + used.ru_stime,
    }


def _kill_groups(order: Order) -> None:
    for path in order.join:
        with contextlib.suppress(OSError):  # Linux before 5.14 has no such file
            Path(path).with_name("cgroup.kill").write_text("1")


def _clear_away(order: Order) -> None:
    for path in (*(Path(file).parent for file in order.join), *map(Path, order.litter)):
        with contextlib.suppress(OSError):
            path.rmdir() if path.is_dir() else path.unlink()


def main() -> int:
    report = os.fdopen(int(sys.argv[1]), "w", encoding="utf-8")
    os.set_inheritable(report.fileno(), False)
    order = Order(**json.loads(sys.stdin.readline()))
    signals = Signals()
    isolation.die_with_parent(signal.SIGTERM)
    if os.getppid() != order.host_pid:
        return 1  # the agent ended before it was asked to take us along
    isolation.adopt_orphans()
    try:
        child, output = launch(order)
    except LaunchFailure as failure:
        said = {"failed": {"stage": failure.stage, "error_number": failure.error_number, "text": failure.text}}
        print(json.dumps(said), file=report, flush=True)
        return 0
    isolation.close_to_tracers()
    if os.getppid() != order.host_pid:
        signals.stop_asked = True
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps({"started": {"child": child}}), file=report, flush=True)
    try:
        ended = supervise(order, child, Output(output), signals)
    except BaseException:
        ending.end_our_descendants(uid=order.uid)
        raise
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps({"ended": ended}), file=report, flush=True)
    if not sys.stdin.readline():  # nobody has heard it: the agent's end of the pipe is closed
        _clear_away(order)
    return 0


if __name__ == "__main__":
    os._exit(main())  # all is said and buried; tidying up the interpreter would take as long as ending the command
