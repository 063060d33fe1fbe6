"""The bwrap provider: each command in namespaces of its own, which bubblewrap makes, with nothing but what it is given.

Nothing runs when a control that was asked for is not found from inside. What bubblewrap alone cannot do (a filter of
system calls) is told by `promises`.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path

from sandbox import counters, verification, view
from sandbox.bwrap.arguments import Outside, argv
from sandbox.contract import Command, Promises
from sandbox.devices.access import by_nodes
from sandbox.devices.record import Gpu
from sandbox.errors import SandboxUnavailable
from sandbox.kernel import process_tree
from sandbox.supervision import control_groups, records, spawner, user_ids
from sandbox.supervision.control_groups import EVERY_KIND, Kind
from sandbox.supervision.process import SupervisedProcess, Tree
from sandbox.supervision.records import Identity
from sandbox.supervision.starting import Place, starting
from sandbox.verification import DidNotRun

_START_S = 30.0
_BEYOND = frozenset({"system calls", "memory", "swap", "processes"})
_NOTES = (
    "a namespace shares the kernel with this machine: a fault of the kernel, or of a device driver that is passed in, "
    "is a way out",
    "no filter of system calls is in force, so that more of the kernel can be reached than from a container",
)
_SHOWING = ("bwrap: Can't find source path", "bwrap: execvp")  # what it was to show or to run, and no namespace
_NAMESPACES = (
    "Let an administrator allow them (sysctl kernel.apparmor_restrict_unprivileged_userns=0 on Ubuntu from 24.04 on, "
    "kernel.unprivileged_userns_clone=1 on older Debian, user.max_user_namespaces above 0; in a container its engine "
    "has to), or choose --sandbox docker."
)


class BwrapSandbox:
    """Runs commands in namespaces. For the arguments see `DockerSandbox`; there are no images here."""

    name = "bwrap"

    def __init__(
        self,
        python: str | Path,
        scratch: Path,
        *,
        owned: tuple[Path, ...] = (),
        mounts: tuple[Path, ...] = (),
        gpu: Gpu | None = None,
        connect_timeout_s: float = 60.0,
    ) -> None:
        self._python, self._mounts = os.path.abspath(python), mounts
        self._access = by_nodes(gpu)
        self._place = Place(scratch.absolute(), (scratch.absolute(), *owned), connect_timeout_s)
        self._user_ids = user_ids.fresh_ids()
        self._settling = threading.RLock()
        self._promises: Promises | None = None
        self._kinds: frozenset[Kind] = EVERY_KIND
        self._view: tuple[Path, ...] | None = None

    def promises(self) -> Promises:
        """Raises: SandboxUnavailable, SandboxError (ContainmentNotHeld)."""
        with self._settling:
            if self._promises is None:
                self._settle()
                self._promises = Promises(
                    contained=True,
                    no_network=True,
                    separate_users=os.geteuid() == 0,
                    ends_whole_tree=True,
                    enforced_cpus="cpusets" in self._kinds,
                    kernel_limits="limits" in self._kinds,
                    notes=(*_NOTES, *control_groups.notes(self._kinds)),
                )
            return self._promises

    def start(self, command: Command) -> SupervisedProcess:
        """Returns once it is executed. Raises: SandboxUnavailable; DiskFull; SandboxError."""
        self.promises()
        return self._start(command)

    def reap(self) -> list[str]:
        return records.reap(self._place.records)

    def _start(self, command: Command) -> SupervisedProcess:
        uid = next(self._user_ids) if os.geteuid() == 0 else None
        with starting(command, self._place, uid, self._kinds) as prepared:
            given = replace(command, env=self._access.merged(command.env))
            told = argv(given, self._outside(given, prepared.channel, uid))
            order = prepared.order(told, Path("/"), {"PATH": os.defpath})._replace(contains=True)
            supervisor = spawner.start(order, prepared.record.log)
            return prepared.running(supervisor, Tree(_init_below(supervisor.child or 0), with_root=True))

    def _settle(self) -> None:
        """Try it out, and give up the control groups that cannot be had; what is promised afterwards stays so."""

        def attempt(kinds: frozenset[Kind]) -> None:
            self._kinds = kinds
            self._try()

        control_groups.settle(attempt)

    def _try(self) -> None:
        """Raises: Unusable, SandboxUnavailable, ContainmentNotHeld, SandboxError."""
        unchecked = _BEYOND if "cpusets" in self._kinds else _BEYOND | {"cpus"}
        nodes, groups = frozenset(map(str, self._access.seen)), frozenset(self._access.groups)
        try:
            verification.verify(self._start, self._python, self._place.scratch, nodes, groups, unchecked=unchecked)
        except DidNotRun as failure:
            raise _understood(failure) from failure.__cause__

    def _outside(self, command: Command, channel: Path, uid: int | None) -> Outside:
        if self._view is None:
            self._view = (*view.of_machine(self._python), *self._mounts)
        program, setpriv = shutil.which("bwrap"), shutil.which("setpriv")
        if program is None:
            raise SandboxUnavailable(
                "bubblewrap is not installed", hint="Install it (Debian: apt-get install bubblewrap)."
            )
        if uid is None and counters.grant_needed(command.counters):
            raise counters.cannot_grant("only root can grant the right to read them")
        if uid is not None and setpriv is None:
            raise SandboxUnavailable(
                "setpriv, which changes the user inside, is not installed",
                hint="Install util-linux, or do not run as root.",
            )
        return Outside(
            program=Path(program),
            setpriv=None if setpriv is None else Path(setpriv),
            uid=uid,
            channel=channel,
            view=self._view,
            devices=self._access.nodes,
            groups=self._access.groups,
            counters=counters.grant_needed(command.counters),
        )


def _understood(failure: DidNotRun) -> SandboxUnavailable:
    """The same, unless bubblewrap's own last words say more to a person."""
    said = failure.last_words
    if said.startswith("bwrap: Unknown option"):
        return SandboxUnavailable(
            f"this bubblewrap is too old: {said}", hint="Install 0.8 or newer, or choose --sandbox docker."
        )
    if said.startswith("bwrap: ") and not said.startswith(_SHOWING):
        return SandboxUnavailable(f"namespaces cannot be made here: {said}", hint=_NAMESPACES)
    return failure


def _init_below(outer: int) -> Identity:
    """Process 1 of the namespaces, the only child that bubblewrap has; of nobody when it has ended already."""
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        found = process_tree.stat(outer)
        if found is None or not found.alive:
            break
        for child in process_tree.children_quickly(outer):
            identity = Identity.of(child)
            if identity is not None:
                return identity
        time.sleep(0.001)
    return Identity(pid=outer, started_ticks=-1)
