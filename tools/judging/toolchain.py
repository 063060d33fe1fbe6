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
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock, Thread

from sandbox import view
from sandbox.errors import SandboxError, SandboxUnavailable
from tools.judging.folders import BYTECODE, CACHE, HEADERS
from tools.judging.worker import Build, Setting, Worker, WorkerFault
from tools.tree_removal import remove_tree

ENDS_S = 20.0  # how long what was given up is waited for


def make(
    setting: Setting,
    device: str = "cpu",
    *,
    bytecode: bool = False,
    begun: Callable[[Worker], None] = lambda worker: None,
) -> None:
    """Make `setting.toolchain`; what is missing afterwards, because it cannot be made here, costs time only.

    `begun` is told of the worker that does it. Raises: SandboxError.
    """
    assert setting.toolchain is not None
    made = setting.toolchain.with_name(f"{setting.toolchain.name}-unfinished")
    remove_tree(made)
    (made / "no-target").mkdir(parents=True)
    nothing = Build("toolchain", made / "no-target")
    with contextlib.suppress(WorkerFault), Worker(setting, nothing, "precompile", bytecode=bytecode) as worker:
        begun(worker)
        worker.ask("precompile", timeout_s=setting.check_timeout_s, device=device)
        worker.stop()
        worker.keep(HEADERS, made / "headers")
        worker.keep(CACHE, made / "cache")
        if bytecode:
            worker.keep(BYTECODE, made / "bytecode")
        made.rename(setting.toolchain)


@dataclass
class Ahead:
    """It is being made in a thread, for this device, with `bytecode` or without."""

    device: str
    bytecode: bool
    thread: Thread = field(init=False)
    _worker: Worker | None = None
    _over: bool = False
    _lock: Lock = field(default_factory=Lock)

    def begin(self, setting: Setting) -> Ahead:
        def run() -> None:
            with contextlib.suppress(SandboxError, OSError):  # of what is over
                make(setting, self.device, bytecode=self.bytecode, begun=self._begun)

        self.thread = Thread(target=run, daemon=True)
        self.thread.start()
        return self

    def serves(self, device: str, bytecode: bool) -> bool:
        """Wait for it: whether that is what was wanted."""
        self.thread.join()
        return self.device == device and self.bytecode >= bytecode

    def end(self) -> None:
        """Give it up."""
        with self._lock:
            self._over, worker = True, self._worker
        if worker is not None and self.thread.is_alive():
            worker.stop()
        self.thread.join(ENDS_S)

    def _begun(self, worker: Worker) -> None:
        with self._lock:
            self._worker, over = worker, self._over
        if over:
            worker.stop()


def begin(setting: Setting, device: str) -> Ahead | None:
    """Begin to make what is missing by the files of the interpreter; None where that is nothing. To be ended."""
    bytecode = _lacks_bytecode(setting.python)
    return Ahead(device, bytecode).begin(setting) if device == "cpu" or bytecode else None


def _lacks_bytecode(python: str) -> bool:
    """Whether the torch of this interpreter was installed without; False where it is not seen on this machine."""
    try:
        folders = view.of_python(python)
    except SandboxUnavailable:
        return False
    found = [each for folder in folders for each in folder.glob("lib/python*/site-packages/torch")]
    return any(next((each / "__pycache__").glob("__init__.*.pyc"), None) is None for each in found)
