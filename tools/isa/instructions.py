"""Parse and count the instructions of AMD machine code as text. Untrusted text raises nothing.

Sources: the instruction set manuals of CDNA3, CDNA4, RDNA3 and RDNA4; names of gfx11 and later (b128) and of before
(dwordx4) mean the same.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

_INSTRUCTION = re.compile(r"\s+((?:[sv]|ds|global|buffer|tbuffer|flat|scratch|image|tensor|cluster)_\w+)\s*(.*)")
_LABEL = re.compile(r"(\.L?BB\w+):")
_PLACE = re.compile(r"\s*([^\s:@\[\]]{1,200}:\d{1,7}):\d")
_MATRIX = re.compile(r"v_((?:mfma|smfmac|wmma|swmmac)_\w+?)(?:_e32|_e64)?$")
_DOT = re.compile(r"v_dot\d")
_ZERO = {"vmcnt": re.compile(r"\bvmcnt\(0\)"), "lgkmcnt": re.compile(r"\blgkmcnt\(0\)")}
_BITS = (
    (re.compile(r"(?:dwordx|_b)(4|128)(?=_|$)"), 128),
    (re.compile(r"(?:dwordx|_b)(3|96)(?=_|$)"), 96),
    (re.compile(r"(?:dwordx|_b|_i|_u)(2|64)(?=_|$)"), 64),
    (re.compile(r"(?:dword|_b32|_i32|_u32)(?=_|$)"), 32),
    (re.compile(r"(?:[us]?short|[ui]16|b16)(?=_|$)"), 16),
    (re.compile(r"(?:[us]?byte|[ui]8|b8)(?=_|$)"), 8),
)
_LANES = ("ds_bpermute", "ds_permute", "ds_swizzle", "ds_bvh", "ds_append", "ds_consume", "ds_nop", "ds_gws")
MEMORY = ("global_", "buffer_", "flat_", "tbuffer_")  # global memory


@dataclass(frozen=True)
class Counts:
    """Instructions of some part of a kernel. Loads and stores are by the bits that one lane moves at once."""

    instructions: int = 0
    loads: Mapping[int, int] = field(default_factory=dict)  # from global memory, also those straight into LDS
    stores: Mapping[int, int] = field(default_factory=dict)
    lds_loads: Mapping[int, int] = field(default_factory=dict)
    lds_stores: Mapping[int, int] = field(default_factory=dict)
    into_lds: int = 0  # of the loads
    flat: int = 0  # of loads and stores: which memory is meant is decided when they run
    scratch: int = 0
    atomics: int = 0
    matrix: Mapping[str, int] = field(default_factory=dict)  # by instruction: mfma_f32_32x32x8_bf16
    dots: int = 0
    moves_of_accumulators: int = 0  # v_accvgpr_read and _write
    waits: int = 0  # on memory and LDS
    drains: int = 0  # of them for all of global memory: vmcnt(0), loadcnt 0
    lds_drains: int = 0  # of them for all of LDS: lgkmcnt(0), dscnt 0
    barriers: int = 0
    branches: int = 0
    lane_moves: int = 0  # ds_bpermute and its like, which use the LDS unit, but no LDS


@dataclass(frozen=True)
class Instruction:
    name: str
    operands: str
    comment: str
    place: str  # `file.py:12`, where debug information names it
    label: str  # that stands before it


def instructions(lines: Iterable[str]) -> list[Instruction]:
    """Those of functions, in order; what is written after the kernels' ends is no code."""
    found, place, label, skipping = [], "", "", False
    for line in lines:
        if line.startswith(("\t.section", "\t.text")):
            skipping = ".section" in line and ".text" not in line
        elif match := _LABEL.match(line):
            label = match[1]
        elif line.startswith("\t.loc"):
            place = _place(line) or place
        elif not skipping and (match := _INSTRUCTION.match(line)):
            operands, _, comment = match[2].partition(";")
            found.append(Instruction(match[1], operands.strip(), comment.strip(), place, label))
            label = ""
    return found


def _place(line: str) -> str:
    """What LLVM's comment says; of inlined code, the line of the kernel that it was inlined into, which comes last."""
    match = _PLACE.match(line.partition(";")[2].rpartition("@[")[2])
    return match[1] if match else ""


def count(listing: Iterable[Instruction]) -> Counts:
    kinds: dict[str, Counter[int]] = {name: Counter() for name in ("loads", "stores", "lds_loads", "lds_stores")}
    single: Counter[str] = Counter()
    matrix: Counter[str] = Counter()
    for one in listing:
        single["instructions"] += 1
        name = one.name
        if is_scratch(one):
            single["scratch"] += 1
        elif name.startswith(MEMORY):
            _count_memory(one, kinds, single)
        elif name.startswith(_LANES):
            single["lane_moves"] += 1
        elif name.startswith("ds_"):
            direction = access(name)
            if direction:
                kinds[f"lds_{direction}"][width(name)] += 1
            else:
                single["atomics"] += 1
        elif match := _MATRIX.match(name):
            matrix[match[1]] += 1
        elif _DOT.match(name):
            single["dots"] += 1
        elif name.startswith("v_accvgpr_"):
            single["moves_of_accumulators"] += 1
        elif name.startswith("s_wait"):
            _count_wait(one, single)
        elif name in ("s_barrier", "s_barrier_wait"):
            single["barriers"] += 1
        elif name.startswith(("s_cbranch", "s_branch")):
            single["branches"] += 1
    found: dict[str, Any] = {name: dict(sorted(bits.items())) for name, bits in kinds.items()}
    return Counts(**found, **cast(dict[str, Any], dict(single)), matrix=dict(matrix))


def _count_memory(one: Instruction, kinds: dict[str, Counter[int]], single: Counter[str]) -> None:
    direction = access(one.name)
    if direction:
        kinds[direction][width(one.name)] += 1
        single["flat"] += one.name.startswith("flat_")
        single["into_lds"] += "_lds" in one.name or one.operands.endswith(" lds")
    elif "atomic" in one.name:
        single["atomics"] += 1


def _count_wait(one: Instruction, single: Counter[str]) -> None:
    """gfx12 has an instruction for each counter, older ones have one for all."""
    name, zero = one.name, one.operands in ("0x0", "0")
    if name in ("s_wait_alu", "s_wait_idle", "s_wait_event", "s_waitcnt_depctr", "s_wait_xcnt"):
        return
    single["waits"] += 1
    single["drains"] += bool(_ZERO["vmcnt"].search(one.operands)) or ("loadcnt" in name and zero)
    single["lds_drains"] += bool(_ZERO["lgkmcnt"].search(one.operands)) or ("dscnt" in name and zero)


def is_scratch(one: Instruction) -> bool:
    """gfx908 and gfx90a spill by buffer instructions, which only LLVM's comment tells from others."""
    return one.name.startswith("scratch_") or (one.name.startswith("buffer_") and "Folded" in one.comment)


def access(name: str) -> str:
    """`loads`, `stores`, or nothing for atomics and cache control."""
    if "atomic" in name:
        return ""
    if "_load" in name or name.startswith("ds_read"):
        return "loads"
    return "stores" if "_store" in name or name.startswith("ds_write") else ""


def width(name: str) -> int:
    """Bits that one lane moves; both parts of an instruction with two addresses together. 0 when it is unknown."""
    bits = next((bits for form, bits in _BITS if form.search(name)), 0)
    return 2 * bits if re.match(r"ds_(?:read2|write2|load_2addr|store_2addr)", name) else bits
