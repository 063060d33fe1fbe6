"""Checks that a command finds nothing of what else runs on this machine: processes, memory, keys, groups, variables.

No attack is pointed at a process but one that the check has started for it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import subprocess
from collections.abc import Iterator

from tests.sandbox.attacks.bench import Bench, checks_in, claim
from tests.sandbox.attacks.inside import attack_reach

_IPC_CREATE_EXCLUSIVELY, _IPC_REMOVE = 0o1000 | 0o2000, 0
_FIRST_PID = 100  # a guest has fewer processes, so that the number of a neighbour is nobody's inside
_libc = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def _neighbour(bench: Bench) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A process of the guest's own user, outside, and the token that it carries: only containment keeps them apart."""
    uid, token = int(bench.ask("status")["Uid"][1]), secrets.token_hex(16)
    other = None if uid == os.geteuid() else uid
    with contextlib.ExitStack() as stack:
        while True:
            process = subprocess.Popen(
                [token, "30"],
                executable="/bin/sleep",
                env={"TOKEN": token},
                user=other,
                group=other,
                extra_groups=None if other is None else [],
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            if process.pid >= _FIRST_PID:
                break
        yield process, token


@claim("no process of this machine is seen, of its own user either", "own processes")
def visible(bench: Bench) -> object:
    with _neighbour(bench) as (_, token):
        return bench.ask("search_processes", token=token)


@claim("no signal reaches a process of this machine, of its own user either", "own processes")
def signals(bench: Bench) -> object:
    with _neighbour(bench) as (process, _):
        shares = bench.ask("signal_to", pid=process.pid, all_but_in=os.stat("/proc/self/ns/pid").st_ino)
        return process.poll() is not None or shares


@claim("no process of this machine can be traced, of its own user either", "own processes")
def tracing(bench: Bench) -> object:
    with _neighbour(bench) as (process, _):
        return bench.ask("trace", pid=process.pid)


@claim("System V memory of this machine is not found", "own shared memory")
def system_v(bench: Bench) -> object:
    key = secrets.randbelow(1 << 30) + 1
    segment = _libc.shmget(key, 4096, _IPC_CREATE_EXCLUSIVELY | 0o666)
    if segment < 0:
        return "no segment could be made to look for"
    try:
        return bench.ask("find_shared_memory", key=key)
    finally:
        _libc.shmctl(segment, _IPC_REMOVE, None)


@claim("it has no keyring of the agent's, where keys and tickets lie", "own keys")
def keys(bench: Bench) -> object:
    shared = set(bench.ask("keyrings")) & set(attack_reach.keyrings())
    return shared and "its session has the agent's keyring"


@claim("the control groups of others are not seen", "own control groups")
def groups(bench: Bench) -> object:
    return bench.ask("other_groups")


@claim("the environment is exactly what was given, and the agent's is nowhere to be read", "clean environment")
def environment(bench: Bench) -> object:
    name = f"RATCHET_CANARY_{secrets.token_hex(8).upper()}"
    os.environ[name] = canary = secrets.token_hex(16)  # as a key of the agent's would be
    try:
        guest = bench.start()
    finally:
        del os.environ[name]
    more = set(guest.variables()) - {"RATCHET_CHECK", "RATCHET_CHANNEL"}
    return more or guest.ask("search_processes", token=canary)


CHECKS = checks_in(globals())
