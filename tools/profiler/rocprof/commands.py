"""The command lines of AMD's profilers: those that we run, and as text those for a closer look by a person.

Does not run anything. Options are those of ROCm 7's documentation; `--kernel-include-regex`, `--pc-sampling-*`,
`%pid%` in a name, the numbers of blocks and the variables of rocprof-sys are from memory. Not checked on hardware.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from tools.profiler.rocprof.counters import passes
from tools.profiler.rocprof.names import parse

ROCPROFV3, COMPUTE, SYSTEMS = "rocprofv3", "rocprof-compute", "rocprof-sys-run"
TOOLS = (ROCPROFV3, COMPUTE, SYSTEMS)
_INTO = "ratchet-profile"  # where a person's commands write
# of `rocprof-compute analyze -b`: speed of light, LDS, vector L1 and its addresses, L2
_BLOCKS = ("2", "12", "15", "16", "17")
_SAMPLED = ("gfx90a", "gfx942", "gfx950")  # where PC sampling works
# of one process each, so that children do not write over it
_NAME = "ratchet_%pid%"


def trace(program: Sequence[str], folder: Path | str, tool: str = ROCPROFV3) -> tuple[str, ...]:
    """Every launch. Reads no counters."""
    return (tool, "--kernel-trace", "-d", str(folder), "-o", _NAME, "-f", "csv", "--", *program)


def count(
    program: Sequence[str], folder: Path | str, counters: Sequence[str], tool: str = ROCPROFV3
) -> tuple[str, ...]:
    """One pass of counters, which must fit together: see `counters.passes`."""
    return (tool, "--pmc", *counters, "-d", str(folder), "-o", _NAME, "-f", "csv", "--", *program)


def compute(program: Sequence[str], folder: Path | str, kernel: str = "", tool: str = COMPUTE) -> tuple[str, ...]:
    """All counters of all kernels, or of those whose name holds `kernel`; runs the program many times."""
    chosen = ("-k", _plain_part(kernel)) if kernel else ()
    return (tool, "profile", "-n", "ratchet", "-p", str(folder), "--no-roof", *chosen, "--", *program)


def analyze(folder: Path | str, blocks: Sequence[str] = _BLOCKS, tool: str = COMPUTE) -> tuple[str, ...]:
    """The tables of what `compute` left."""
    return (tool, "analyze", "-p", str(folder), "-b", *blocks)


def deeper(program: Sequence[str], architecture: str = "", kernel: str = "") -> list[str]:
    """What a person may run for a closer look, at one kernel where one is named: each line tells for what, and how."""
    into, name = _INTO, architecture.partition(":")[0]
    run = ("--", *program)
    only = ("--kernel-include-regex", re.escape(_plain_part(kernel))) if kernel else ()
    timeline = (ROCPROFV3, "--sys-trace", "-d", into, "-o", "timeline", "-f", "pftrace", *run)
    found = [
        _line("timeline of HIP calls, kernels and copies, for ui.perfetto.dev", timeline),
        *(
            _line(
                f"counters, pass {number}",
                (ROCPROFV3, "--pmc", *counters, *only, "-d", into, "-o", f"counters_{number}", "-f", "csv", *run),
            )
            for number, counters in enumerate(passes(name), 1)
        ),
        _line("what can be counted here", ("rocprofv3-avail", "list")),
        _line("all counters, in many runs", compute(program, into, kernel)),
        _line("its tables", analyze(into)),
    ]
    if name in _SAMPLED:
        sampling = "--pc-sampling-beta-enabled --pc-sampling-method host_trap --pc-sampling-unit time"
        options = (*sampling.split(), "--pc-sampling-interval", "100", "-d", into, "-o", "samples", "-f", "csv")
        found.append(_line("where in a kernel the time goes", (ROCPROFV3, *options, *run)))
    variables = f"ROCPROFSYS_TRACE=true ROCPROFSYS_OUTPUT_PATH={into}"
    found.append(f"host and device on one timeline: {variables} {shlex.join((SYSTEMS, *run))}")
    found.append(
        "kernels inside a graph that is replayed, where the ones above lack them: "
        f"DEBUG_CLR_GRAPH_PACKET_CAPTURE=0 {shlex.join(trace(program, into))}"
    )
    return found


def _line(purpose: str, argv: Sequence[str]) -> str:
    return f"{purpose}: {shlex.join(argv)}"


def _plain_part(kernel: str) -> str:
    """The name without what its spellings differ in."""
    return parse(kernel).base.replace("'anonymous'", "(anonymous namespace)")
