"""The local provider: a command is an ordinary process tree with a clean environment. It is not containment.

A command gets its own user id where the agent is root and that user can run the target's interpreter, and a
control group where the machine has one for us; both are found by trying, and told by `promises`.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
from pathlib import Path

from sandbox import counters
from sandbox.contract import Command, Promises
from sandbox.devices.access import by_variables
from sandbox.devices.record import Gpu
from sandbox.errors import SandboxUnavailable, Unusable
from sandbox.supervision import control_groups, records, spawner, user_ids
from sandbox.supervision.control_groups import Kind
from sandbox.supervision.process import SupervisedProcess, Tree
from sandbox.supervision.records import Identity
from sandbox.supervision.spawner import Supervisor
from sandbox.supervision.starting import Place, disk_errors, starting
from sandbox.supervision.supervisor import Order

_PROBE_TIMEOUT_S = 60.0
_PROBE = """
import importlib.util, sys
open("written", "w").close()
missing = [name for name in sys.argv[1:] if importlib.util.find_spec(name) is None]
sys.exit(f"it cannot import {', '.join(missing)}" if missing else 0)
"""
_NOT_CONTAINED = (
    "local is not containment: the code runs as an ordinary program, can reach the network and read what its user can "
    "read, sees other processes, and shares /tmp, /dev/shm and the devices with everything else"
)
_OUR_USER = "commands run under the agent's own user id and can read and write what it can"
_ESCAPABLE = "a process that kills its own supervisor could outlive its command"
_OF_THE_USER = ("users", "user", "folder", "exec")  # stages of starting at which a separate user may be what fails


class LocalSandbox:
    """Runs commands on this machine.

    `python` is the interpreter that commands will use and `imports` are modules it must find: a separate user id is
    only used if that user can run it. `scratch` is a folder of the agent alone. `owned` are further folders
    that the agent made: what lies in them is made readable for a separate user who needs it; nothing else has its mode
    changed.
    `gpu` is the one that commands are told to use; they see the others too.

    Without a separate user id `Command.readable` and `Command.writable` are wishes only.
    """

    name = "local"

    def __init__(
        self,
        python: str | Path,
        scratch: Path,
        *,
        imports: tuple[str, ...] = (),
        owned: tuple[Path, ...] = (),
        gpu: Gpu | None = None,
        connect_timeout_s: float = 60.0,
    ) -> None:
        self._python, self._imports = str(python), imports
        self._place = Place(scratch.absolute(), (scratch.absolute(), *owned), connect_timeout_s)
        self._access = by_variables(gpu)
        self._user_ids = user_ids.fresh_ids()
        self._settling = threading.Lock()
        self._promises: Promises | None = None
        self._users, self._no_users = os.geteuid() == 0, "only root can use others"
        self._kinds: frozenset[Kind] = control_groups.EVERY_KIND

    def promises(self) -> Promises:
        """Raises: SandboxUnavailable, SandboxError."""
        with self._settling:
            if self._promises is None:
                self._settle()
                notes = [_NOT_CONTAINED, *control_groups.notes(self._kinds)]
                notes += [] if self._users else [f"{_OUR_USER} ({self._no_users})", _ESCAPABLE]
                self._promises = Promises(
                    contained=False,
                    no_network=False,
                    separate_users=self._users,
                    # a control group alone holds nobody who may write to it, and the same user may
                    ends_whole_tree=self._users,
                    enforced_cpus="cpusets" in self._kinds,
                    kernel_limits="limits" in self._kinds,
                    notes=tuple(notes),
                )
            return self._promises

    def start(self, command: Command) -> SupervisedProcess:
        """Returns once it is executed. Raises: SandboxUnavailable; DiskFull; SandboxError."""
        self.promises()
        return self._start(command)

    def reap(self) -> list[str]:
        return records.reap(self._place.records)

    def _start(self, command: Command) -> SupervisedProcess:
        if counters.grant_needed(command.counters):
            raise counters.cannot_grant("local grants no rights")
        uid = next(self._user_ids) if self._users else None
        with starting(command, self._place, uid, self._kinds) as prepared:
            env = {**self._access.merged(command.env), "RATCHET_CHANNEL": prepared.record.channel}
            order = prepared.order(list(command.argv), command.cwd, env)
            if uid is not None:
                user_ids.need_within_reach(uid, self._access.groups, command)
                order = order._replace(uid=uid, groups=self._access.groups)
            supervisor = self._spawn(order, prepared.record.log)
            return prepared.running(supervisor, Tree(Identity.of_living(supervisor.pid)))

    def _spawn(self, order: Order, log: Path) -> Supervisor:
        return spawner.start(order, log)

    def _settle(self) -> None:
        """Find what works here, trying it out."""
        if not sys.platform.startswith("linux"):
            raise SandboxUnavailable("the local sandbox needs Linux", hint="Run it on a Linux machine.")

        def attempt(kinds: frozenset[Kind]) -> None:
            self._kinds = kinds
            self._try()

        while True:
            try:
                control_groups.settle(attempt)
                return
            except Unusable as failure:
                if not (self._users and failure.stage in _OF_THE_USER):
                    hint = f"Check that {self._python} runs by itself; --python names another interpreter."
                    raise SandboxUnavailable(f"no command can be run here: {failure}", hint=hint) from failure
                self._users, self._no_users = False, failure.message

    def _try(self) -> None:
        """Run the target's interpreter. Raises: Unusable."""
        with disk_errors("trying out the sandbox"):
            self._place.make(for_others=self._users)
            folder = Path(tempfile.mkdtemp(prefix="probe-", dir=self._place.scratch))
        # what a user's own interpreter can import is not the sandbox's business, only what a separate user can reach
        modules = self._imports if self._users else ()
        kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
        command = Command(
            argv=(self._python, "-c", _PROBE, *modules),
            cwd=folder,
            role="probe",
            env={"PATH": os.defpath, "HOME": str(folder), **kept},
            writable=(folder,),
        )
        try:
            process = self._start(command)
            process.wait(_PROBE_TIMEOUT_S)
            ended = process.stop()
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if ended.status != 0:
            said = ended.output_tail.strip().splitlines()
            raise Unusable("exec", f"{self._python}: {said[-1] if said else ended.reason}")
