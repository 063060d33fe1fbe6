"""What is made once for all workers, by one that loads no code of a target.

- For a CPU, what Inductor keeps where every worker would have to make it again: precompiled headers, which most of a
  kernel's compilation otherwise goes into, and the answers to which vector instructions work here.
- Where torch was installed without bytecode (as uv does, and images that forbid writing it), that of the modules which
  compiling imports: workers may not write it, so each would compile 3000 modules of Python at its start.

All of it depends on what is installed alone, so sharing it is no way from one candidate to another; the referee watches
it all the same.
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
