"""Probe the GPU after a process has failed on it, before anything else is timed or judged there.

A separate process computes a known result. A fault of one process may end others on the same device, and a driver
needs a while to reset it.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from sandbox.contract import Command
from sandbox.errors import EngineRefused, SandboxError, Unusable
from tools.errors import DeviceLost
from tools.judging.worker import Setting
from tools.program_environment import environment

ANSWER_S = 60.0  # importing torch and starting a runtime included
PATIENCE_S = 120.0  # for a reset
_ABOUT_A_DEVICE = re.compile(r"/dev/|\bdevices?\b", re.IGNORECASE)  # a node is gone, or an engine cannot pass it in


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
        """Return once the device works. Raises: DeviceLost when it does not within its time, SandboxError."""
        deadline = time.monotonic() + self.patience_s
        while self.watched and (wrong := self.look()) is not None:
            if time.monotonic() > deadline:
                raise DeviceLost(f"The GPU no longer works: {wrong}.")
            time.sleep(1.0)

    def look(self) -> str | None:
        """What is wrong with it now, in a few words; None when nothing is.

        Raises: SandboxError when the sandbox is at fault, such as DiskFull and EngineLost.
        """
        home = Path(tempfile.mkdtemp(prefix="health-", dir=self.setting.scratch))
        command = Command(
            argv=(self.setting.python, str(self.setting.guest / "health.py"), self.device),
            cwd=self.setting.guest,
            role="health",
            env=environment(home),
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
            may_be = type(error) in (SandboxError, EngineRefused) and _ABOUT_A_DEVICE.search(error.message)
            if isinstance(error, Unusable) or may_be:
                return str(error)  # its device nodes may be gone
            raise
        finally:
            shutil.rmtree(home, ignore_errors=True)
        if ended.status == 0:
            return None
        said = ended.output_tail.strip().splitlines()
        return said[-1] if said else f"the look at it ended with {ended.reason}"
