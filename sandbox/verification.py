"""Look from inside whether a contained command has what was asked for and nothing else, before any other command.

Does not go on when a control is missing: what cannot be seen to hold is not promised (`ContainmentNotHeld`). The
probe is ours and runs on the bare interpreter, without the target's packages.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sandbox import view
from sandbox.contract import Command, Limits, Process, ProcessEnded, WouldNotFreeze
from sandbox.errors import ContainmentNotHeld, SandboxError, SandboxUnavailable
from sandbox.guest.wire import BadFrame, ChannelClosed
from sandbox.supervision import user_ids

_TIMEOUT_S = 60.0
_STILL_S = 5.0
_PACKAGE = "_ratchet_guest"
_START = f"import os, sys; sys.path.insert(0, os.getcwd()); from {_PACKAGE}.probe import main; main()"
_LIMITS = Limits(memory_bytes=1 << 30, processes=256, file_bytes=1 << 30, tmp_bytes=32 << 20, shm_bytes=32 << 20)
_SCRATCH = ("/tmp", "/dev/shm")  # of its own, to write to
# that no command needs
_HOST_FILES = ("/etc/shadow", "/etc/ssh", "/var/run/docker.sock", "/run/docker.sock", "/proc/1/root/etc/shadow")
_NAMESPACES = ("ipc", "mnt", "net", "pid", "uts")
_ALWAYS = frozenset({"/dev/full", "/dev/null", "/dev/random", "/dev/tty", "/dev/urandom", "/dev/zero", "/dev/core"})
_NOBODYS_GROUP = 65534  # how a user namespace shows groups that it does not know
_NO_SWAP_ACCOUNTING = (
    "This kernel does not count swap: boot it with swapaccount=1 on its command line, or choose another provider with "
    "--sandbox."
)
_ANOTHER = "Fix the engine, or choose another provider with --sandbox."
_ADDED = frozenset({"RATCHET_CHANNEL", "LC_CTYPE"})  # the latter by Python itself, in the C locale


class Facts(BaseModel):
    """What `sandbox/guest/probe.py` tells."""

    model_config = ConfigDict(extra="forbid")

    status: dict[str, list[str]]
    namespaces: dict[str, int]
    environment: list[str]
    interfaces: list[str]
    processes: list[int]
    cpus: list[int]
    limits: dict[str, list[int]]
    cgroups: dict[str, str | None]
    sizes: dict[str, int | None]
    nodes: list[str]
    written: list[str]
    seen: dict[str, list[int]]
    host_settings: list[str] = Field(default_factory=list)


class DidNotRun(SandboxUnavailable):
    """The probe ended before it answered; `last_words` is what was printed last."""

    def __init__(self, message: str, last_words: str, *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.last_words = last_words


def verify(
    start: Callable[[Command], Process],
    python: str,
    scratch: Path,
    devices: frozenset[str] = frozenset(),
    groups: frozenset[int] | None = None,
    *,
    unchecked: frozenset[str] = frozenset(),
) -> None:
    """Run the probe and compare. `devices` and `groups` are what it was given besides its own: see `Access.seen`.

    `unchecked` are controls that this provider does not promise.

    Raises: ContainmentNotHeld, DidNotRun, SandboxError.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    folder = scratch / f"probe-{secrets.token_hex(8)}"
    try:
        command, told = _run(start, python, folder)
        missing = [found for found in shortcomings(told, command, devices, groups) if found[0] not in unchecked]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if missing:
        uncounted = told.cgroups.get("swap") is None and any(control == "swap" for control, _ in missing)
        raise ContainmentNotHeld(
            f"the sandbox does not hold what was asked of it: {'; '.join(text for _, text in missing)}",
            hint=_NO_SWAP_ACCOUNTING if uncounted else _ANOTHER,
        )


def _run(start: Callable[[Command], Process], python: str, folder: Path) -> tuple[Command, Facts]:
    readable, writable, hidden = folder / "readable", folder / "writable", folder / "hidden"
    # open to all, so that only containment, and no mode, keeps it out
    for each in (folder, readable, readable / "open", readable / _PACKAGE, writable, hidden):
        each.mkdir()
        each.chmod(0o777 if each.name == "open" else 0o755)
    for name in ("__init__.py", "probe.py", "wire.py"):
        (readable / _PACKAGE / name).write_bytes(resources.files("sandbox.guest").joinpath(name).read_bytes())
    (hidden / "secret").write_text("for nobody inside\n")
    cpus = sorted(os.sched_getaffinity(0))
    argument = json.dumps(
        {
            "readable": [str(readable), str(readable / "open"), "/dev"],
            "writable": [str(writable), *_SCRATCH],
            "hidden": [str(hidden / "secret"), str(Path.home() / ".ssh"), *_HOST_FILES],
            "cpus": cpus,
        }
    )
    command = Command(
        argv=(python, "-I", "-S", "-c", _START, argument),
        cwd=readable,
        role="probe",
        env={"PATH": os.defpath},
        readable=(readable,),
        writable=(writable,),
        cpus=tuple(cpus[:1]) if len(cpus) > 1 else None,
        limits=_LIMITS,
    )
    process = start(command)
    try:
        told = process.channel.receive(_TIMEOUT_S)
        _look_at_freezing(process)
        return command, Facts.model_validate(told.get("facts"))
    except (ProcessEnded, ChannelClosed) as error:
        last_words = (process.stop().output_tail.strip().splitlines() or [str(error)])[-1]
        raise DidNotRun(
            f"{python} does not run in the sandbox: {last_words}",
            last_words,
            hint=_why_not(python),
        ) from error
    except (BadFrame, TimeoutError, ValidationError) as error:
        raise SandboxError(f"the probe of the sandbox answers with nonsense: {error}") from error
    finally:
        process.stop()


def _look_at_freezing(process: Process) -> None:
    """Of what is not seen from here nothing is frozen, and nothing held to its limits. Raises: ContainmentNotHeld."""
    try:
        process.freeze()
        wrong = _moving(process)
    except WouldNotFreeze as error:
        wrong = str(error)
    finally:
        with contextlib.suppress(WouldNotFreeze):  # what it did meanwhile is for those to judge who time it
            process.thaw()
    if wrong:
        raise ContainmentNotHeld(f"a command cannot be stopped for a while: {wrong}", hint=_ANOTHER)


def _moving(process: Process) -> str:
    """What is wrong with how it was stopped; a task that waits inside the kernel stops when it comes out."""
    deadline = time.monotonic() + _STILL_S
    while True:
        tasks = process.usage().tasks
        if tasks and all(task.stopped for task in tasks):
            return ""
        if time.monotonic() > deadline:
            return "some of it runs on" if tasks else "none of it is seen"
        time.sleep(0.01)


def _why_not(python: str) -> str:
    """The fix for an interpreter that does not run inside."""
    closed = _closed_to_its_user(python) if os.geteuid() == 0 else None
    if closed is not None:
        return f"As root, commands run as other users: let those pass (chmod o+rx {closed}), or name another --python."
    return "--python names another interpreter, --mount shows what it needs besides its own folder."


def _closed_to_its_user(python: str) -> Path | None:
    """What of this machine's interpreter another user may not read; what lies above what is shown is no obstacle."""
    with contextlib.suppress(SandboxUnavailable, OSError):  # an image's is not on this machine
        for shown in (folder.resolve() for folder in view.of_python(python)):
            for path in (shown, Path(python).resolve()):
                closed = user_ids.closed_to(next(user_ids.fresh_ids()), (), path, below=shown)
                if closed is not None:
                    return closed
    return None


def shortcomings(
    told: Facts, command: Command, devices: frozenset[str], groups: frozenset[int] | None
) -> Iterator[tuple[str, str]]:
    """What does not hold: the control, and a sentence. For `devices` and `groups` see `verify`."""
    yield from _rights(told, groups)
    yield from _reach(told, command)
    yield from _limits(told, command.limits)
    if nodes := sorted(set(told.nodes) - _ALWAYS - devices):
        yield "devices", f"it sees devices that were not given ({', '.join(nodes[:5])})"
    if command.cpus is not None and (more := sorted(set(told.cpus) - set(command.cpus))):
        yield "cpus", f"it can run on CPUs that it was not given ({', '.join(map(str, more[:5]))})"


def _rights(told: Facts, given_groups: frozenset[int] | None) -> Iterator[tuple[str, str]]:
    def status(name: str) -> str:
        return " ".join(told.status.get(name, ["?"]))

    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        if status(name).strip("0"):
            yield "capabilities", f"it has capabilities ({name} {status(name)})"
    if status("NoNewPrivs") != "1":
        yield "new privileges", "a set-user-id program could give it new rights"
    if status("Seccomp") != "2":
        yield "system calls", "no filter of system calls is in force"
    if "0" in told.status.get("Uid", ["0"]):
        yield "user", "it runs as root"
    own, groups = set(told.status.get("Gid", ["0"])), set(told.status.get("Groups", ["0"]))
    if "0" in own | groups:
        yield "user", "it is in root's group"
    elif given_groups is not None:
        given = {str(group) for group in (*given_groups, _NOBODYS_GROUP)}
        if more := sorted(groups - own - given):
            yield "user", f"it is in groups that were not given ({', '.join(more)})"


def _reach(told: Facts, command: Command) -> Iterator[tuple[str, str]]:
    for name in _NAMESPACES:
        try:
            ours = os.stat(f"/proc/self/ns/{name}").st_ino
        except OSError:
            ours = None
        if ours is None or told.namespaces.get(name) in (None, ours):
            yield "namespaces", f"it shares the {name} namespace of the agent"
    if told.processes:
        yield "other processes", f"it sees processes that are not its own ({', '.join(map(str, told.processes[:5]))})"
    if told.interfaces != ["lo"]:
        yield "network", f"it has network interfaces ({', '.join(told.interfaces)})"
    if more := sorted(set(told.environment) - set(command.env) - _ADDED):
        yield "environment", f"its environment has variables that were not given ({', '.join(more)})"
    allowed = {str(folder) for folder in command.writable} | set(_SCRATCH)
    for folder in told.written:
        if folder not in allowed:
            given = folder.startswith(str(command.cwd))
            yield "read-only mounts" if given else "read-only root", f"it can write to {folder}"
    for folder in sorted(allowed - set(told.written)):
        yield "writable mounts", f"it cannot write to {folder}, which is its own"
    for path, found in told.seen.items():
        if found == identity(path):  # an image has files of its own by these names
            yield "host files", f"it sees {path}"
    if told.host_settings:
        yield "host settings", f"it may change settings of the kernel ({', '.join(told.host_settings)})"


def identity(path: str) -> list[int]:
    """Device and inode; nothing for what is not on this machine."""
    try:
        found = os.stat(path)
    except OSError:
        return []
    return [found.st_dev, found.st_ino]


def _limits(told: Facts, limits: Limits) -> Iterator[tuple[str, str]]:
    assert limits.file_bytes is not None and limits.memory_bytes is not None and limits.processes is not None
    if told.limits.get("core") != [0, 0]:
        yield "core dumps", "it may write core dumps"
    file_bytes = told.limits.get("fsize", [])
    if len(file_bytes) != 2 or not all(0 <= each <= limits.file_bytes for each in file_bytes):  # -1 is no limit
        yield "file size", "the size of its files is not limited"
    sizes: tuple[tuple[str, str, int], ...] = (
        ("tmp", "/tmp", limits.tmp_bytes),
        ("shm", "/dev/shm", limits.shm_bytes),
    )
    for control, folder, most in sizes:
        size = told.sizes.get(folder)
        if size is not None and size > most:
            yield control, f"{folder} holds {size} bytes where {most} were allowed"
    kernel: tuple[tuple[str, int], ...] = (
        ("memory", limits.memory_bytes),
        ("processes", limits.processes),
        ("swap", limits.memory_bytes),
    )
    for control, most in kernel:  # the kernel's limits lie a little above ours, so that ours are met first
        found = told.cgroups.get(control)
        if found is None or not found.isdigit() or int(found) > 2 * most:
            yield control, f"the kernel does not limit its {control} ({found})"
