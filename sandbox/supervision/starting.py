"""Start one command under a supervisor, and undo all of it when anything fails.

Knows nothing of how the command is isolated: `launch` does that.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import NamedTuple

from sandbox.contract import Command
from sandbox.supervision import preparing
from sandbox.supervision.control_groups import ControlGroups
from sandbox.supervision.preparing import Place, Prepared, disk_errors
from sandbox.supervision.process import SupervisedProcess, Tree
from sandbox.supervision.spawner import Finished, Supervisor


class Running(NamedTuple):
    """A command that has been executed. `complete` says more of its end, and ends what no signal of ours does."""

    supervisor: Supervisor
    tree: Tree
    groups: ControlGroups
    complete: Callable[[Finished], Finished] = lambda finished: finished


@contextlib.contextmanager
def undoing(command: Command) -> Iterator[ExitStack]:
    """What is put on the stack is done unless the command has been started. Raises: DiskFull, SandboxError."""
    with disk_errors(f"starting {command.role}"), ExitStack() as undo:
        yield undo


def start(
    name: str,
    command: Command,
    place: Place,
    uid: int | None,
    undo: ExitStack,
    launch: Callable[[Prepared], Running],
    groups: ControlGroups | None = None,
) -> SupervisedProcess:
    """`uid` is a user id that nothing but this command has; `groups` were made for it and go with it.

    Raises: Unusable, OSError, SandboxError.
    """
    prepared = preparing.prepare(name, command, place, uid, undo, () if groups is None else groups.folders)
    running = launch(prepared)
    filed = prepared.filed.naming(running.supervisor.pid)
    process = SupervisedProcess(
        command.role,
        running.supervisor,
        running.tree,
        prepared.listener,
        running.groups,
        filed,
        place.connect_timeout_s,
        complete=running.complete,
        own_uid=uid,
    )
    undo.pop_all()
    undo.callback(process.stop)  # until what is needed to end it later is on the disk
    filed.write()
    undo.pop_all()
    return process
