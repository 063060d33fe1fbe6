"""The profiler as a library: a script's text goes in, a profile comes out. The script runs in a sandbox."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sandbox import choose
from sandbox.choose import Name, Wanted
from sandbox.contract import Sandbox
from sandbox.devices import lock
from sandbox.devices.gpus import choose_gpu, find_gpus
from tools.profiler.collect import CALLS, Depth, profile_tree
from tools.profiler.result import Profile
from tools.tree_removal import passable_folder


@dataclass(frozen=True)
class GenericProfiler:
    """Profiles scripts on one device.

    `gpu_id` is the GPU's number as `agent doctor` lists it, None the first that the environment leaves visible; on a
    machine without GPUs it is the CPU that is profiled. `sandbox` is "auto", the first that contains code here, or the
    name of one; "local" contains nothing. `calls` are of each case, `counters` is how far AMD's own tools look.
    """

    gpu_id: int | None = None
    python: str = sys.executable
    sandbox: Name | Literal["auto"] = "auto"
    calls: int = CALLS
    counters: Depth = "none"

    def profile(self, script_content: str, module_name: str = "module") -> Profile:
        """The script declares what is to be called as the entry of a target does, in any form: see the README.

        Times in the result are in microseconds per call. Raises: NoSuchGpu, DeviceBusy, WorkloadError, SandboxError.
        """
        name = re.sub(r"\W", "_", module_name)[:80] or "module"
        with self._opened(name) as (sandbox, folder):
            tree = folder / "tree"
            tree.mkdir()
            (tree / f"{name}.py").write_text(script_content)
            (folder / "scratch").mkdir(mode=0o711)
            found = profile_tree(
                sandbox,
                tree,
                f"{name}.py",
                python=self.python,
                scratch=folder / "scratch",
                trace=folder / "trace.json.gz",
                calls=self.calls,
                depth=self.counters,
            )
        found.entry = module_name
        return found

    @contextlib.contextmanager
    def _opened(self, name: str) -> Iterator[tuple[Sandbox, Path]]:
        with passable_folder("ratchet-profile-") as folder, contextlib.ExitStack() as held:
            gpu = choose_gpu(self.gpu_id if find_gpus().gpus else None, os.environ)
            if gpu is not None:
                held.enter_context(lock.acquire(gpu, run_id=f"{name}-{secrets.token_hex(4)}"))
            wanted = Wanted(self.python, folder / "sandbox", (folder,), gpu=gpu)
            if self.sandbox == "auto":
                sandbox = choose.choose(wanted, agree=lambda reasons: False)
            else:
                sandbox = choose.make(self.sandbox, wanted)
            held.callback(sandbox.reap)
            yield sandbox, folder


def profile_module(
    script_content: str, module_name: str = "module", gpu_id: int | None = None, **options: object
) -> Profile:
    """One profile of a script; `options` are the other fields of `GenericProfiler`. Raises: as its `profile`."""
    return GenericProfiler(gpu_id, **options).profile(script_content, module_name)  # type: ignore[arg-type]
