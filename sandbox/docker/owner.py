"""Label that records which agent owns a container, and whether that agent still runs.

An agent that cannot be seen from here, such as one of another machine that shares the engine, counts as running.
"""

from __future__ import annotations

import os

from sandbox.supervision.records import Identity


def own_label() -> str:
    """For what this process makes."""
    mine = Identity.of_living(os.getpid())
    return f"{_where_pids_count()}:{mine.pid}:{mine.started_ticks}"


def lives(label: str) -> bool:
    """Also true when nobody here can tell: of another machine or pid namespace that shares the engine."""
    where, _, process = label.partition(":")
    pid, _, ticks = process.partition(":")
    if not (pid.isdigit() and ticks.isdigit()):
        return False
    return where != _where_pids_count() or Identity(pid=int(pid), started_ticks=int(ticks)).alive


def _where_pids_count() -> str:
    """This pid namespace. After another start of the machine its containers do not run, and are removed as ours."""
    return f"{os.stat('/proc/self/ns/pid').st_ino}"
