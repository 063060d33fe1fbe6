"""What is made once for all workers, by a worker that loads no code of a target.

- For a CPU: Inductor's precompiled headers, which take most of a kernel's compilation, and its checks of which vector
  instructions work here.
- Where torch was installed without bytecode (as uv does): that of the modules which compiling imports. Workers may not
  write it, so each would compile 3000 modules of Python at its start.

It depends only on installed packages, so nothing passes from one candidate to another; the referee watches it anyway.
"""

from __future__ import annotations

import contextlib

from tools.judging.folders import BYTECODE, CACHE, HEADERS
from tools.judging.worker import Build, Setting, Worker, WorkerFault


def make(setting: Setting, device: str = "cpu", *, bytecode: bool = False) -> None:
    """Make `setting.toolchain`; what is missing afterwards, because it cannot be made here, costs time only."""
    assert setting.toolchain is not None
    made = setting.toolchain.with_name(f"{setting.toolchain.name}-unfinished")
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
