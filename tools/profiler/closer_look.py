"""Commands for a closer look than a profile gives, for the user to run: AMD's tools, or NVIDIA's.

Does not run any of them.
"""

from __future__ import annotations

import json
import shlex

from tools.judging.workload import Case, Workload
from tools.profiler.result import Profile
from tools.profiler.rocprof import commands, names

_CALLS = 20
_MODEL = 'f = n["Model"](*n.get("get_init_inputs", list)()).cuda()'
_MODEL_INPUTS = 'x = [y.cuda() if isinstance(y, torch.Tensor) else y for y in n["get_inputs"]()]'


def commands_for(profile: Profile, workload: Workload) -> list[str]:
    """Each tells for what and how; to be run in the entry's folder with its Python. None on a CPU."""
    if workload.device == "cpu":
        return []
    name = profile.entry.rpartition("/")[2]
    scripted = workload.form not in ("declared", "kernelbench")
    program = ("python", name) if scripted else ("python", "-c", _program(name, workload))
    kernel = profile.kernels[0].name if profile.kernels else ""
    if workload.environment.get("gfx"):
        return commands.deeper(program, profile.architecture, kernel)
    chosen = ("--kernel-name", names.parse(kernel).base.rpartition("::")[2]) if kernel else ()
    timeline = ("nsys", "profile", "--trace", "cuda,nvtx", "--output", "ratchet-profile", *program)
    counters = ("ncu", "--set", "full", *chosen, "--launch-count", "3", "--export", "ratchet-profile", *program)
    return [f"timeline: {shlex.join(timeline)}", f"counters: {shlex.join(counters)}"]


def _program(entry: str, workload: Workload) -> str:
    """Calls of the first case, in the mode in which they are timed."""
    training, bench = workload.mode == "training", workload.form == "kernelbench"
    parts = [
        "import runpy, torch",
        f"torch.set_grad_enabled({training})",
        f"n = runpy.run_path({json.dumps(entry)})",
        _MODEL if bench else 'f = n["build"]()',
        *([f"f.train({training})"] if workload.is_module else []),
        *([_MODEL_INPUTS] if bench else _inputs(workload.cases[0])),
        "x = (x,) if isinstance(x, torch.Tensor) else x",
        f"[f(**x) if isinstance(x, dict) else f(*x) for _ in range({_CALLS})]",
        "torch.cuda.synchronize()",
    ]
    return "; ".join(parts)


def _inputs(case: Case) -> list[str]:
    """As the entry declares them, and what the phase calls."""
    shape = f", **{dict(case.shape)!r}" if case.shape else ""
    if not case.phase:
        return [f'x = n["inputs"](0{shape})']
    return [
        f'p = n["phases"]; p = (p() if callable(p) else p)[{json.dumps(case.phase)}]',
        f'x = (p.get("inputs") or n["inputs"])(0{shape})',
        'f = getattr(f, p["method"]) if p.get("method") else f',
    ]
