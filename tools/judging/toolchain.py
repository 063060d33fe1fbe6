"""What is made once for all workers, by a worker that loads no code of a target.

- For a CPU: Inductor's precompiled headers, which take most of a kernel's compilation, and its checks of which vector
  instructions work here.
- Where torch was installed without bytecode (as uv does): that of the modules which compiling imports. Workers may not
  write it, so each would compile 3000 modules of Python at its start.

It depends only on installed packages, so nothing passes from one candidate to another; the referee watches it anyway.
A run begins to make it while its target is looked at.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from threading import Thread

from sandbox import view
from sandbox.errors import SandboxError, SandboxUnavailable
from tools.judging.folders import BYTECODE, CACHE, HEADERS
from tools.judging.worker import Build, Setting, Worker, WorkerFault
from tools.tree_removal import remove_tree


def make(setting: Setting, device: str = "cpu", *, bytecode: bool = False) -> None:
    """Make `setting.toolchain`; what is missing afterwards, because it cannot be made here, costs time only."""
    assert setting.toolchain is not None
    made = setting.toolchain.with_name(f"{setting.toolchain.name}-unfinished")
    remove_tree(made)
    (made / "no-target").mkdir(parents=True)
    nothing = Build("toolchain", made / "no-target")
    with contextlib.suppress(WorkerFault), Worker(setting, nothing, "precompile", bytecode=bytecode) as worker:
        worker.ask("precompile", timeout_s=setting.check_timeout_s, device=device)
        worker.stop()
        worker.keep(HEADERS, made / "headers")
        worker.keep(CACHE, made / "cache")
        if bytecode:
            worker.keep(BYTECODE, made / "bytecode")
        made.rename(setting.toolchain)


@dataclass(frozen=True)
class Ahead:
    """It is being made, for this device. What it runs in ends with the processes of the run."""

    thread: Thread
    device: str


def begin(setting: Setting, device: str) -> Ahead | None:
    """Begin to make what is missing by the files of the interpreter; None where that is nothing."""
    bytecode = _lacks_bytecode(setting.python)
    if device != "cpu" and not bytecode:
        return None

    def run() -> None:
        with contextlib.suppress(SandboxError, OSError):  # the run is over
            make(setting, device, bytecode=bytecode)

    thread = Thread(target=run, daemon=True)
    thread.start()
    return Ahead(thread, device)


def _lacks_bytecode(python: str) -> bool:
    """Whether the torch of this interpreter was installed without; False where it is not on this machine."""
    try:
        folders = view.of_python(python)
    except SandboxUnavailable:
        return False
    found = [each for folder in folders for each in folder.glob("lib/python*/site-packages/torch")]
    return any(next((each / "__pycache__").glob("__init__.*.pyc"), None) is None for each in found)
