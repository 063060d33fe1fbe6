"""Commands for a closer look than a profile gives, for the user to run: AMD's tools, or NVIDIA's.

Refuses to run any of them.
"""

from __future__ import annotations

import json
import shlex

from tools.judging.workload import Workload
from tools.profiler.result import Profile
from tools.profiler.rocprof import commands

_CALLS = 20
_BUILT = {
    "declared": 'f, x = n["build"](), n["inputs"](0)',
    "kernelbench": 'f, x = n["Model"](*n["get_init_inputs"]()).eval(), n["get_inputs"]()',
}


def commands_for(profile: Profile, workload: Workload) -> list[str]:
    """Each tells for what and how; to be run in the entry's folder with its Python. None on a CPU."""
    if workload.device == "cpu":
        return []
    name = profile.entry.rpartition("/")[2]
    program = ("python", name) if workload.form not in _BUILT else ("python", "-c", _program(name, workload.form))
    kernel = profile.kernels[0].name if profile.kernels else ""
    if workload.environment.get("gfx"):
        return commands.deeper(program, profile.architecture, kernel)
    chosen = ("--kernel-name", kernel.partition("<")[0].rpartition("::")[2]) if kernel else ()
    timeline = ("nsys", "profile", "--trace", "cuda,nvtx", "--output", "ratchet-profile", *program)
    counters = ("ncu", "--set", "full", *chosen, "--launch-count", "3", "--export", "ratchet-profile", *program)
    return [f"timeline: {shlex.join(timeline)}", f"counters: {shlex.join(counters)}"]


def _program(entry: str, form: str) -> str:
    return (
        f"import runpy, torch; torch.set_grad_enabled(False); n = runpy.run_path({json.dumps(entry)}); {_BUILT[form]}; "
        f"[f(**x) if isinstance(x, dict) else f(*x) for _ in range({_CALLS})]; torch.cuda.synchronize()"
    )
