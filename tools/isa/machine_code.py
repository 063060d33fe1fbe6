"""Read AMD machine code as text: registers, spills, and what the instructions do, in all and inside loops.

Untrusted text raises nothing and takes linear time; a number that is missing is 0. Source: LLVM, "User Guide for AMDGPU
Backend" (code object metadata, kernel descriptor).
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import dataclass, field

from tools.isa.instructions import MEMORY, Counts, Instruction, access, count, instructions, is_scratch, width

LONGEST = 16 << 20  # characters
_LONGEST_LINE = 1000
_NUMBER = re.compile(r"\s*(?:- )?\.(?:amdhsa_)?(\w+):?\s+(\d{1,10})\s*$")
_COMMENT_NUMBER = re.compile(r";\s*(\w+):\s*(\d{1,10})\b")
_SET = re.compile(r"\s*\.set \.?L?[\w.$]*\.num_(vgpr|agpr), (\d{1,6})\s*$")


@dataclass(frozen=True)
class Narrow:
    """Accesses of global memory that move less than 4 bytes a lane, by the line of the source they belong to."""

    place: str  # `file.py:12`
    bits: int
    store: bool
    count: int
    in_loop: bool


@dataclass(frozen=True)
class MachineCode:
    """`vgprs` are those one lane needs of the file that limits waves: on gfx90a and later the sum of both kinds."""

    kernel: str = ""
    vgprs: int = 0
    given_vgprs: int = 0  # those one lane is given: more than it needs where `waves_per_eu` asks for few waves
    arch_vgprs: int = 0
    acc_vgprs: int = 0
    sgprs: int = 0
    vgpr_spills: int = 0
    sgpr_spills: int = 0
    scratch_bytes: int = 0  # of one lane
    lds_bytes: int = 0  # static; what Triton asks for at launch is told apart
    both_units: bool = False  # a workgroup may use both compute units of a work-group processor (gfx10 and later)
    loops: int = 0
    everywhere: Counts = field(default_factory=Counts)
    in_loops: Counts = field(default_factory=Counts)
    narrow: tuple[Narrow, ...] = ()

    @property
    def spills(self) -> bool:
        return bool(self.vgpr_spills or self.sgpr_spills or self.scratch_bytes)


def read(text: str) -> MachineCode:
    """Of one compiled kernel."""
    lines = [line[:_LONGEST_LINE] for line in text[:LONGEST].splitlines()]
    numbers = _numbers(lines)
    listing = instructions(lines)
    ranges = _loops(listing)
    inside = _inside(ranges, len(listing))
    arch, acc = numbers.get("NumVgprs", 0), numbers.get("agpr_count", 0) or numbers.get("NumAgprs", 0)
    vgprs = numbers.get("vgpr_count", 0) or numbers.get("next_free_vgpr", 0)
    return MachineCode(
        kernel=next((m[1] for line in lines if (m := re.match(r"\s*\.amdhsa_kernel (\S+)", line))), ""),
        vgprs=vgprs,
        given_vgprs=max(vgprs, numbers.get("next_free_vgpr", 0), numbers.get("NumVGPRsForWavesPerEU", 0)),
        arch_vgprs=arch or min(vgprs, numbers.get("accum_offset", vgprs)),
        acc_vgprs=acc,
        sgprs=numbers.get("sgpr_count", 0) or numbers.get("next_free_sgpr", 0),
        vgpr_spills=numbers.get("vgpr_spill_count", 0),
        sgpr_spills=numbers.get("sgpr_spill_count", 0),
        scratch_bytes=numbers.get("private_segment_fixed_size", 0),
        lds_bytes=numbers.get("group_segment_fixed_size", 0),
        both_units=bool(numbers.get("workgroup_processor_mode", 0)),
        loops=len({start for start, _ in ranges}),
        everywhere=count(listing),
        in_loops=count(one for one, looped in zip(listing, inside, strict=True) if looped),
        narrow=_narrow(listing, inside),
    )


def _numbers(lines: list[str]) -> dict[str, int]:
    """Directives, metadata and LLVM's comments that hold one number; the last of each, which is the kernel's."""
    found: dict[str, int] = {}
    for line in lines:
        if match := _NUMBER.match(line) or _COMMENT_NUMBER.match(line):
            found[match[1]] = int(match[2])
        elif match := _SET.match(line):
            found["NumVgprs" if match[1] == "vgpr" else "NumAgprs"] = int(match[2])
    return found


def _loops(listing: list[Instruction]) -> list[tuple[int, int]]:
    """From the target of each branch that leads back, to that branch."""
    at = {one.label: number for number, one in enumerate(listing) if one.label}
    found = []
    for number, one in enumerate(listing):
        if one.name.startswith(("s_cbranch", "s_branch")):
            start = at.get(one.operands, number + 1)
            if start <= number:
                found.append((start, number))
    return found


def _inside(ranges: list[tuple[int, int]], length: int) -> list[bool]:
    starts, ends = sorted(start for start, _ in ranges), sorted(end for _, end in ranges)
    return [bisect_right(starts, number) > bisect_left(ends, number) for number in range(length)]


def _narrow(listing: list[Instruction], inside: list[bool]) -> tuple[Narrow, ...]:
    found: Counter[tuple[str, int, bool, bool]] = Counter()
    for one, looped in zip(listing, inside, strict=True):
        bits, direction = width(one.name), access(one.name)
        if one.name.startswith(MEMORY) and direction and 0 < bits < 32 and not is_scratch(one):
            found[(one.place, bits, direction == "stores", looped)] += 1
    return tuple(Narrow(place, bits, store, number, looped) for (place, bits, store, looped), number in found.items())
