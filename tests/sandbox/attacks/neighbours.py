"""Checks that a command finds nothing of what else runs on this machine: processes, memory, keys, groups, variables.

Does not point an attack at anybody's process but one that the check has started for it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import subprocess
from collections.abc import Iterator

from tests.sandbox.attacks.bench import Bench, Guest, checks_in, claim
from tests.sandbox.attacks.inside import attack_reach

_IPC_CREATE_EXCLUSIVELY, _IPC_REMOVE = 0o1000 | 0o2000, 0
_FIRST_PID = 100  # a guest has fewer processes, so that the number of a neighbour is nobody's inside
_SLEEP = "/bin/sleep"
_libc = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def _neighbour(guest: Guest, token: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of the guest's own user, outside, that carries the token: only containment keeps them apart."""
    uid = int(guest.ask("status")["Uid"][1])
    other = None if uid == os.geteuid() else uid
    with contextlib.ExitStack() as stack:
        while True:
            process = subprocess.Popen(
                [token, "30"],
                executable=_SLEEP,
                env={"TOKEN": token},
                user=other,
                group=other,
                extra_groups=None if other is None else [],
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            if process.pid >= _FIRST_PID:
                break
        yield process


@claim("no process of this machine is seen, of its own user either", "own processes")
def visible(bench: Bench) -> str | None:
    token = secrets.token_hex(16)
    with _neighbour(bench.guest, token):
        found = bench.ask("search_processes", token=token)
    return f"it reads {', '.join(found)} of a process outside" if found else None


@claim("no signal reaches a process of this machine, of its own user either", "own processes")
def signals(bench: Bench) -> str | None:
    with _neighbour(bench.guest, bench.token) as process:
        shares = bench.ask("signal_to", pid=process.pid, all_but_in=os.stat("/proc/self/ns/pid").st_ino)
        if process.poll() is not None:
            return "it ended a process outside"
    return shares


@claim("no process of this machine can be traced, of its own user either", "own processes")
def tracing(bench: Bench) -> str | None:
    with _neighbour(bench.guest, bench.token) as process:
        return "it got hold of a process outside" if bench.ask("trace", pid=process.pid) else None


@claim("System V memory of this machine is not found", "own shared memory")
def system_v(bench: Bench) -> str | None:
    key = secrets.randbelow(1 << 30) + 1
    segment = _libc.shmget(key, 4096, _IPC_CREATE_EXCLUSIVELY | 0o666)
    if segment < 0:
        return "no segment could be made to look for"
    try:
        return "it found a segment by its key" if bench.ask("find_shared_memory", key=key) else None
    finally:
        _libc.shmctl(segment, _IPC_REMOVE, None)


@claim("it has no keyring of the agent's, where keys and tickets lie", "own keys")
def keys(bench: Bench) -> str | None:
    shared = set(bench.ask("keyrings")) & set(attack_reach.keyrings())
    return "its session has the agent's keyring" if shared else None


@claim("the control groups of others are not seen", "own control groups")
def groups(bench: Bench) -> str | None:
    seen = bench.ask("other_groups")
    return f"it sees {len(seen)} of them, such as {seen[0]}" if seen else None


@claim("the environment is exactly what was given, and the agent's is nowhere to be read", "clean environment")
def environment(bench: Bench) -> str | None:
    name = f"RATCHET_CANARY_{secrets.token_hex(8).upper()}"
    os.environ[name] = canary = secrets.token_hex(16)  # as a key of the agent's would be
    try:
        guest = bench.start()
    finally:
        del os.environ[name]
    if more := set(guest.ask("variables")) - {"RATCHET_CHECK", "RATCHET_CHANNEL"}:
        return f"it was given {', '.join(sorted(more))} besides"
    found = guest.ask("search_processes", token=canary)
    return f"{', '.join(found)} tells of the agent's environment" if found else None


CHECKS = checks_in(globals())
