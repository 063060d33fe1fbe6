"""Whether two compilations gave the same machine code, and if not, how they differ in a few counts.

Compares what the GPU sees: instructions, constants, registers, LDS and waves; no names, comments, labels or debug
information.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tools.isa.machine_code import LONGEST, MachineCode, read

_LABEL = re.compile(r"(\.?L?(?:BB|tmp)\w+|\.L\w+|[A-Za-z_][\w.$]*):")
_LOCAL = re.compile(r"\.L?BB\w+")
_DATA = re.compile(r"\s+\.(?:long|short|byte|quad|zero|ascii|asciz|fill)\b")
_CODE = re.compile(r"\s+[a-z]")
_ALIGNED = re.compile(r"\s+")


@dataclass(frozen=True)
class Difference:
    same: bool
    counts: tuple[tuple[str, int, int], ...] = ()  # what, in the first, in the second; only those that differ

    def told(self) -> str:
        if self.same:
            return "the same machine code"
        parts = [f"{what} {first} and {second}" for what, first, second in self.counts]
        return "different: " + (", ".join(parts) if parts else "other instructions, in the same numbers")


def compare(first: str, second: str, *, launch: tuple[object, object] = (None, None)) -> Difference:
    """Of two kernels as text for one architecture. `launch` is what else decides: waves and LDS of each."""
    if launch[0] == launch[1] and normalised(first) == normalised(second):
        return Difference(same=True)
    ours, theirs = counts(read(first)), counts(read(second))
    return Difference(False, tuple((what, ours[what], theirs[what]) for what in ours if ours[what] != theirs[what]))


def normalised(text: str) -> list[str]:
    """The lines that make a kernel what it is, with labels by number and its name as `@`."""
    return list(_kept(text[:LONGEST].splitlines()))


def counts(code: MachineCode) -> dict[str, int]:
    every = code.everywhere
    return {
        "instructions": every.instructions,
        "in loops": code.in_loops.instructions,
        "registers": code.vgprs,
        "spilled registers": code.vgpr_spills + code.sgpr_spills,
        "bytes of scratch": code.scratch_bytes,
        "loads": sum(every.loads.values()),
        "loads of 16 bytes": every.loads.get(128, 0),
        "stores": sum(every.stores.values()),
        "LDS reads": sum(every.lds_loads.values()),
        "LDS writes": sum(every.lds_stores.values()),
        "matrix instructions": sum(every.matrix.values()),
        "waits": every.waits,
        "branches": every.branches,
    }


def _kept(lines: list[str]) -> Iterator[str]:
    named = next((m[1] for line in lines if (m := re.match(r"\s*\.amdhsa_kernel (\S{1,500})", line))), None)
    name = re.compile(rf"\b{re.escape(named)}\b") if named else None
    labels: dict[str, str] = {}
    section = ".text"
    for line in lines:
        bare = line.partition(";")[0].rstrip()
        if bare.startswith(("\t.section", "\t.text", "\t.data", "\t.rodata")):
            section = bare.split()[-1 if ".section" not in bare else 1].partition(",")[0]
            continue
        if not section.startswith((".text", ".rodata", ".data")):
            continue
        if match := _LABEL.match(bare):
            if _LOCAL.fullmatch(match[1]):
                yield _number(match[1], labels) + ":"
            continue
        data = _DATA.match(bare) and not section.startswith(".text")
        resource = re.match(r"\s+\.amdhsa_(?:next_free|accum|group_segment|private_segment_fixed)\w+ \d+", bare)
        if data or resource or _CODE.match(bare):
            bare = name.sub("@", bare) if name else bare
            yield _ALIGNED.sub(" ", _LOCAL.sub(lambda m: _number(m[0], labels), bare)).strip()


def _number(label: str, labels: dict[str, str]) -> str:
    return labels.setdefault(label, f"L{len(labels)}")
