"""What Inductor makes once per machine for its CPU kernels, made by a worker that loads no code of a target.

Precompiled headers, which most of a kernel's compilation otherwise goes into, and the answers to which vector
instructions work here. Inductor keeps both where every worker would have to make them anew. They depend on torch
and the compiler alone, so sharing them is no way from one candidate to another; the referee watches them all the same.
"""

from __future__ import annotations

import contextlib

from tools.judging.worker import Build, Setting, Worker, WorkerFault


def make(setting: Setting) -> None:
    """Make `setting.toolchain`; what is missing afterwards, because it cannot be made here, costs time only."""
    assert setting.toolchain is not None
    made = setting.toolchain.with_name(f"{setting.toolchain.name}-unfinished")
    (made / "no-target").mkdir(parents=True)
    nothing = Build("toolchain", made / "no-target")
    with contextlib.suppress(WorkerFault), Worker(setting, nothing, "precompile") as worker:
        worker.ask("precompile", timeout_s=setting.check_timeout_s)
        worker.stop()
        worker.keep_headers(made / "headers")
        worker.keep_cache(made / "cache")
        made.rename(setting.toolchain)
