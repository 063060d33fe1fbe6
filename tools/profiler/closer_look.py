"""Commands for a closer look than a profile gives, for the user to run: AMD's tools, or NVIDIA's.

Options are those of ROCm 7's documentation; `--kernel-include-regex`, `--pc-sampling-*`, the numbers of blocks and the
variables of rocprof-sys are from memory. Not checked on hardware.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence

from tools.judging.script import Case
from tools.judging.workload import Workload
from tools.profiler.result import Profile
from tools.profiler.rocprof.counters import passes
from tools.profiler.rocprof.names import plain_part
from tools.profiler.rocprof.tool import COMPUTE, ROCPROFV3, SYSTEMS

_INTO = "ratchet-profile"  # where the commands write
# of `rocprof-compute analyze -b`: speed of light, LDS, vector L1 and its addresses, L2
_BLOCKS = ("2", "12", "15", "16", "17")
_SAMPLED = ("gfx90a", "gfx942", "gfx950")  # where PC sampling works
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
        return deeper(program, profile.architecture, kernel)
    chosen = ("--kernel-name", plain_part(kernel).rpartition("::")[2]) if kernel else ()
    timeline = ("nsys", "profile", "--trace", "cuda,nvtx", "--output", _INTO, *program)
    counters = ("ncu", "--set", "full", *chosen, "--launch-count", "3", "--export", _INTO, *program)
    return [f"timeline: {shlex.join(timeline)}", f"counters: {shlex.join(counters)}"]


def deeper(program: Sequence[str], architecture: str = "", kernel: str = "") -> list[str]:
    """`purpose: command` of AMD's tools, for one kernel where one is named."""
    name, run, part = architecture.partition(":")[0], ("--", *program), plain_part(kernel)
    only = ("--kernel-include-regex", re.escape(part)) if kernel else ()
    csv = ("-f", "csv", *run)
    sampling = "--pc-sampling-beta-enabled --pc-sampling-method host_trap --pc-sampling-unit time"
    found = [
        (
            "timeline of HIP calls, kernels and copies, for ui.perfetto.dev",
            (ROCPROFV3, "--sys-trace", "-d", _INTO, "-o", "timeline", "-f", "pftrace", *run),
        ),
        *(
            (
                f"counters, pass {number}",
                (ROCPROFV3, "--pmc", *counters, *only, "-d", _INTO, "-o", f"counters_{number}", *csv),
            )
            for number, counters in enumerate(passes(name), 1)
        ),
        ("what can be counted here", ("rocprofv3-avail", "list")),
        (
            "all counters, in many runs",
            (COMPUTE, "profile", "-n", "ratchet", "-p", _INTO, "--no-roof", *(("-k", part) if kernel else ()), *run),
        ),
        ("its tables", (COMPUTE, "analyze", "-p", _INTO, "-b", *_BLOCKS)),
    ]
    if name in _SAMPLED:
        options = (*sampling.split(), "--pc-sampling-interval", "100", "-d", _INTO, "-o", "samples", *csv)
        found.append(("where in a kernel the time goes", (ROCPROFV3, *options)))
    trace = (ROCPROFV3, "--kernel-trace", "-d", _INTO, "-o", "ratchet_%pid%", *csv)
    return [
        *(f"{purpose}: {shlex.join(argv)}" for purpose, argv in found),
        f"host and device on one timeline: ROCPROFSYS_TRACE=true ROCPROFSYS_OUTPUT_PATH={_INTO} "
        + shlex.join((SYSTEMS, *run)),
        "kernels inside a graph that is replayed, where the ones above lack them: "
        f"DEBUG_CLR_GRAPH_PACKET_CAPTURE=0 {shlex.join(trace)}",
    ]


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
