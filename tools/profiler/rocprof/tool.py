"""Record a program with AMD's profilers: which of them the sandbox has, the trace, and the counters pass by pass.

A tool that is missing, fails, hangs or leaves nothing becomes a note. Its files are not trusted, since the profiled
program could have written them: they say where to look, never what is faster. Options are those of ROCm 7's
documentation; `%pid%` in a name is from memory. Not checked on hardware.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from tools.profiler.rocprof.counters import passes
from tools.profiler.rocprof.recorded import Recorded, read_rocprof_compute, read_rocprofv3
from tools.profiler.rocprof.running import RESULTS, Job, Ran, run

ROCPROFV3, COMPUTE, SYSTEMS = TOOLS = ("rocprofv3", "rocprof-compute", "rocprof-sys-run")
LOOK_S = 60.0
REPLAYS = 30  # how often rocprof-compute runs a program, about
_MARK = "ratchet-tools "
_LOOK = f"""
import json, shutil, sys
print({_MARK!r} + json.dumps({{name: shutil.which(name) for name in sys.argv[1:]}}))
"""
_CSV = ("-d", RESULTS, "-o", "ratchet_%pid%", "-f", "csv", "--")  # of each process, so that children have their own
_LONGEST_PATH = 1000
_NO_KERNEL = "holds no kernel; those of a graph that is replayed may be hidden from it"


@dataclass
class Tools:
    """Where the tools are that the sandbox has, by name."""

    paths: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def find_tools(job: Job) -> Tools:
    """Asked of the sandbox, which may hold others than this machine."""
    # -I and -S: nothing of the target's environment is loaded
    argv = (job.python, "-I", "-S", "-c", _LOOK, *TOOLS)
    ran = run(job, "the look for AMD's profilers", argv, limit_s=LOOK_S)
    tools = Tools(notes=ran.notes)
    for line in ran.output.splitlines():
        if line.startswith(_MARK):
            tools.paths |= _paths(line.removeprefix(_MARK))
    if not tools.notes and ROCPROFV3 not in tools.paths:
        tools.notes.append("rocprofv3 is not in the sandbox: no registers, LDS, occupancy or counters from it")
    return tools


def record(job: Job, tools: Tools, architecture: str, *, counters: bool = True) -> Recorded:
    """The trace of rocprofv3, then its counters, one run of the program for each pass.

    Nothing is counted where the trace saw no kernel, nor any more once a pass was refused or hung.
    """
    path = tools.paths.get(ROCPROFV3)
    if path is None:
        return Recorded()
    traced = run(job, "rocprofv3's trace", (path, "--kernel-trace", *_CSV, *job.program), read_rocprofv3)
    recorded = _told(traced, f"rocprofv3's trace {_NO_KERNEL}", bool(traced.recorded.dispatches))
    wanted = passes(architecture) if counters else []
    if counters and not wanted:
        recorded.notes.append(f"no counters are known for {architecture or 'this architecture'}")
    if not recorded.dispatches:
        return recorded
    for number, chosen in enumerate(wanted, 1):
        what = f"rocprofv3's pass {number} of {len(wanted)} of counters"
        argv = (path, "--pmc", *chosen, *_CSV, *job.program)
        counted = run(job, what, argv, read_rocprofv3, counters=True)
        found = _told(counted, f"{what} ({', '.join(chosen)}) left no counters", bool(counted.recorded.readings))
        recorded.readings += found.readings
        recorded.notes += found.notes
        if counted.outcome in ("refused", "hung"):
            break
    return recorded


def record_compute(job: Job, tools: Tools) -> Recorded:
    """What rocprof-compute reads in many runs of the program."""
    path = tools.paths.get(COMPUTE)
    if path is None:
        return Recorded(notes=["rocprof-compute is not in the sandbox"])
    argv = (path, "profile", "-n", "ratchet", "-p", RESULTS, "--no-roof", "--", *job.program)
    limit_s = REPLAYS * job.time_limit_s
    ran = run(job, "rocprof-compute", argv, read_rocprof_compute, limit_s=limit_s, counters=True)
    return _told(ran, "rocprof-compute left no counters", bool(ran.recorded.readings))


def _told(ran: Ran, lacking: str, there: bool) -> Recorded:
    """What was recorded, with the notes on how; a silence of a command that says all went well is told too."""
    recorded = ran.recorded
    recorded.notes[:0] = ran.notes
    if ran.outcome == "ended" and not there:
        recorded.notes.append(lacking)
    return recorded


def _paths(said: str) -> dict[str, str]:
    """The program's own words: only what could be a path of one of the tools."""
    try:
        found = json.loads(said)
    except (ValueError, RecursionError):
        return {}
    return {
        name: path
        for name in TOOLS
        if isinstance(found, dict)
        and isinstance(path := found.get(name), str)
        and len(path) <= _LONGEST_PATH
        and path.isprintable()
        and Path(path).is_absolute()
    }
