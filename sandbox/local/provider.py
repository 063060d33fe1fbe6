"""The local provider: a command is an ordinary process tree with a clean environment and all the kernel gives freely.

Refuses to call itself containment. What it holds on this machine is found by trying and told by `promises`.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
from pathlib import Path

from sandbox.contract import Command, Promises
from sandbox.devices.access import by_variables
from sandbox.devices.record import Gpu
from sandbox.errors import SandboxUnavailable, Unusable
from sandbox.local import start
from sandbox.local.plan import Feature, Plan
from sandbox.supervision import records, user_ids
from sandbox.supervision.preparing import Place, disk_errors
from sandbox.supervision.process import SupervisedProcess

_PROBE_TIMEOUT_S = 60.0
_PROBE = """
import importlib.util, sys
open("written", "w").close()
missing = [name for name in sys.argv[1:] if importlib.util.find_spec(name) is None]
sys.exit(f"it cannot import {', '.join(missing)}" if missing else 0)
"""


class LocalSandbox:
    """Runs commands on this machine.

    `python` is the interpreter that commands will use and `imports` are modules it must find: a separate user id is
    only used if that user can run it. `scratch` is a folder of ours alone. `owned` are further folders that the agent
    made: what lies in them is made readable for a separate user who needs it; nothing else has its mode changed.
    `gpu` is the one that commands are told to use; they see the others too.
    `without` switches features off, for tests and for machines where one misbehaves.

    What it cannot hold, whatever it promises: a command reads every file that is open to all users and writes every
    folder that is (/tmp, /dev/shm). Under a separate user id nothing else of the user's is open to it; without one,
    `Command.readable` and `Command.writable` are wishes only.
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
        without: frozenset[Feature] = frozenset(),
    ) -> None:
        self._python, self._imports, self._without = str(python), imports, without
        self._place = Place(scratch.absolute(), (scratch.absolute(), *owned), connect_timeout_s)
        self._access = by_variables(gpu)
        self._user_ids = user_ids.fresh_ids()
        self._planning = threading.Lock()
        self._plan: Plan | None = None

    def promises(self) -> Promises:
        """Raises: SandboxUnavailable, SandboxError."""
        return self._settled().promises()

    def start(self, command: Command) -> SupervisedProcess:
        """Returns once it is executed. Raises: SandboxUnavailable; DiskFull; SandboxError."""
        return self._start(command, self._settled())

    def reap(self) -> list[str]:
        return records.reap(self._place.records)

    def _start(self, command: Command, plan: Plan) -> SupervisedProcess:
        return start.start(command, plan, self._place, self._access, next(self._user_ids) if plan.users else None)

    def _settled(self) -> Plan:
        """The best plan that works here, tried out once."""
        with self._planning:
            if self._plan is None:
                if not sys.platform.startswith("linux"):
                    raise SandboxUnavailable("the local sandbox needs Linux", hint="Run it on a Linux machine.")
                self._plan = self._tried(Plan.most(self._without))
            return self._plan

    def _tried(self, plan: Plan) -> Plan:
        while True:
            try:
                self._try(plan)
                return plan
            except Unusable as failure:
                following = plan.after(failure)
                if following is None:
                    hint = f"Check that {self._python} runs by itself; --python names another interpreter."
                    raise SandboxUnavailable(f"no command can be run here: {failure}", hint=hint) from failure
                plan = following

    def _try(self, plan: Plan) -> None:
        """Run the target's interpreter under this plan. Raises: Unusable."""
        with disk_errors("trying out the sandbox"):
            self._place.make(for_others=plan.users)
            folder = Path(tempfile.mkdtemp(prefix="probe-", dir=self._place.scratch))
        # what a user's own interpreter can import is not the sandbox's business, only what a separate user can reach
        modules = self._imports if plan.users else ()
        kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
        command = Command(
            argv=(self._python, "-c", _PROBE, *modules),
            cwd=folder,
            role="probe",
            env={"PATH": os.defpath, "HOME": str(folder), **kept},
            writable=(folder,),
        )
        try:
            process = self._start(command, plan)
            process.wait(_PROBE_TIMEOUT_S)
            ended = process.stop()
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if ended.status != 0:
            said = ended.output_tail.strip().splitlines()
            raise Unusable("exec", f"{self._python}: {said[-1] if said else ended.reason}")
