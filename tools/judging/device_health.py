"""Whether the GPU still works after a process has failed on it, before anything else is timed or judged there.

Refuses to guess from error messages: a process of its own computes something whose result is known. A fault of one
process may end others on the same device, and a driver that resets it needs a while.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from sandbox.contract import Command
from sandbox.errors import SandboxError
from tools.errors import DeviceLost
from tools.judging.worker import PASSED, Setting

ANSWER_S = 60.0  # importing torch and starting a runtime included
PATIENCE_S = 120.0  # for a reset


@dataclass(frozen=True)
class DeviceHealth:
    """Of the device that a run's workers use. On a CPU there is nothing to look at."""

    setting: Setting
    device: str
    answer_s: float = ANSWER_S
    patience_s: float = PATIENCE_S

    @property
    def watched(self) -> bool:
        return self.device != "cpu"

    def settle(self) -> None:
        """Return once the device works. Raises: DeviceLost when it does not within its time."""
        deadline = time.monotonic() + self.patience_s
        while self.watched and (wrong := self.look()) is not None:
            if time.monotonic() > deadline:
                raise DeviceLost(f"The GPU no longer works: {wrong}.")
            time.sleep(1.0)

    def look(self) -> str | None:
        """What is wrong with it now, in a few words; None when nothing is."""
        home = Path(tempfile.mkdtemp(prefix="health-", dir=self.setting.scratch))
        environ = {name: os.environ[name] for name in PASSED if name in os.environ}
        command = Command(
            argv=(self.setting.python, str(self.setting.guest / "health.py"), self.device),
            cwd=self.setting.guest,
            role="health",
            env={**environ, "HOME": str(home), "TMPDIR": str(home), "PYTHONDONTWRITEBYTECODE": "1"},
            readable=(self.setting.guest,),
            writable=(home,),
        )
        try:
            process = self.setting.sandbox.start(command)
            if process.wait(self.answer_s) is None:
                process.stop()
                return f"it has not answered within {self.answer_s:.0f} s"
            ended = process.stop()
        except SandboxError as error:
            return str(error)  # its device nodes may be gone
        finally:
            shutil.rmtree(home, ignore_errors=True)
        if ended.status == 0:
            return None
        said = ended.output_tail.strip().splitlines()
        return said[-1] if said else f"the look at it ended with {ended.reason}"
