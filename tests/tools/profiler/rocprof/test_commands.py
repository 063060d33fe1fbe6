"""Command lines are those of the documentation, and what is shown to a person can be pasted into a shell."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tools.profiler.rocprof import commands
from tools.profiler.rocprof.counters import passes

PROGRAM = ("python", "bench.py", "a b")


def test_the_trace_names_its_folder_and_format() -> None:
    assert shlex.join(commands.trace(PROGRAM, Path("/out"))) == (
        "rocprofv3 --kernel-trace -d /out -o ratchet_%pid% -f csv -- python bench.py 'a b'"
    )


def test_a_pass_names_its_counters_before_the_folder() -> None:
    argv = commands.count(PROGRAM, "/out", ("A", "B"), tool="/opt/rocm/bin/rocprofv3")
    assert argv[:5] == ("/opt/rocm/bin/rocprofv3", "--pmc", "A", "B", "-d")
    assert argv[-4:] == ("--", *PROGRAM)


def test_rocprof_compute_is_asked_for_one_kernel_or_all() -> None:
    assert "-k" not in commands.compute(PROGRAM, "/out")
    argv = commands.compute(PROGRAM, "/out", "void ns::norm<int>(float*) [clone .kd]")
    assert argv[argv.index("-k") + 1] == "ns::norm"
    assert commands.analyze("/out")[:4] == ("rocprof-compute", "analyze", "-p", "/out")


@pytest.mark.parametrize(
    "kernel", ["", "f<int>", "$(reboot)", "'; reboot; '", "`x`\n", "(anonymous namespace)::k(int)"]
)
def test_what_is_shown_can_be_pasted(kernel: str) -> None:
    lines = commands.deeper(PROGRAM, "gfx942:xnack-", kernel)
    for line in lines:
        purpose, _, command = line.partition(": ")
        assert purpose and "reboot" not in [word.strip() for word in shlex.split(command)]
        assert "avail" in command or "analyze" in command or shlex.split(command)[-4:] == ["--", *PROGRAM]
    assert sum("--pmc" in line for line in lines) == len(passes("gfx942"))
    assert any("--pc-sampling-method" in line for line in lines) and any("rocprof-sys-run" in line for line in lines)


def test_a_kernels_name_is_no_pattern() -> None:
    found = [
        line for line in commands.deeper(PROGRAM, "gfx942", "ns::(anonymous namespace)::k<1>(int)") if "--pmc" in line
    ]
    words = shlex.split(found[0].partition(": ")[2])
    assert words[words.index("--kernel-include-regex") + 1] == r"ns::\(anonymous\ namespace\)::k"


def test_what_the_hardware_lacks_is_not_shown() -> None:
    assert not any("--pmc" in line or "--pc-sampling" in line for line in commands.deeper(PROGRAM, "gfx1100"))
