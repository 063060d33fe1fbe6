"""What the machine code suggests to try, most pressing first, each with its numbers. None of it is measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tools.hardware import DEVICES, Architecture
from tools.isa.instructions import Counts
from tools.isa.layouts import Layouts
from tools.isa.machine_code import MachineCode
from tools.occupancy import Occupancy

MOST = 6
_NEAR = 1.15  # a register count this close above a step is worth a hint to the compiler
_PLENTY = 50.0  # percent of all waves, from which on more seldom help
_KPACK = ("gfx90a", "gfx942")  # where the option means something
_SHARE = 0.25  # of accesses, from which on they matter


@dataclass(frozen=True)
class Facts:
    """One kernel on one architecture."""

    architecture: Architecture
    code: MachineCode
    layouts: Layouts
    occupancy: Occupancy
    lds_bytes: int
    num_warps: int
    num_stages: int

    @property
    def hot(self) -> Counts:
        """What is in loops; all of it where there is no loop, or nothing happens in them."""
        inside = self.code.in_loops
        return inside if inside.loads or inside.matrix or inside.lds_loads else self.code.everywhere

    @property
    def where(self) -> str:
        return "in loops" if self.hot is self.code.in_loops else "in the kernel"


@dataclass(frozen=True)
class Advice:
    topic: str
    text: str


def advise(facts: Facts) -> tuple[Advice, ...]:
    found = [Advice(topic, text) for topic, rule in RULES.items() for text in rule(facts)]
    return tuple(found[:MOST])


def _spills(facts: Facts) -> Iterator[str]:
    code = facts.code
    if code.spills:
        spilled = f"{code.vgpr_spills} vector and {code.sgpr_spills} scalar registers do not fit"
        yield (
            f"{spilled}, and {code.scratch_bytes} bytes of scratch a lane go through memory: smaller blocks, more "
            f"than {count(facts.num_warps, 'warp')}, or no waves_per_eu"
        )


def _fit(facts: Facts) -> Iterator[str]:
    if facts.occupancy.workgroups == 0:
        yield f"it does not fit on a compute unit; it needs {facts.occupancy.next_step().partition(':')[0]}"


def _coalescing(facts: Facts) -> Iterator[str]:
    """dwordx4 moves 16 bytes a lane; less is more instructions for the same bytes."""
    hot = facts.hot
    for what, accesses, store in (("loads", hot.loads, False), ("stores", facts.code.everywhere.stores, True)):
        total, few = sum(accesses.values()), _below(accesses, 32)
        if not total or few / total < _SHARE:
            continue
        at = sorted({one.place for one in facts.code.narrow if one.store == store and one.place})[:2]
        found = (
            f"{few} of {total} {what} {'in the kernel' if store else facts.where} move less than 4 bytes a lane"
            f"{_at(at)}"
        )
        if store and any(one.layout.startswith("amd_") for one in facts.layouts.accesses if one.store):
            yield (
                f"{found}: results leave in the layout of the matrix unit, where a lane holds no neighbours; the "
                "transposed product may give it some"
            )
        else:
            yield (
                f"{found}: let neighbouring lanes take neighbouring elements, and let the compiler know it "
                "(contiguous last dimension, sizes and strides divisible by 16, `tl.multiple_of`, a mask that is the "
                "same for 8 elements); 16 bytes a lane are best"
            )


def _width(facts: Facts) -> Iterator[str]:
    loads = facts.hot.loads
    total, narrow, tiny = sum(loads.values()), _below(loads, 128), _below(loads, 32)
    if total and narrow / total > 0.5 and tiny / total < _SHARE:
        widest = max(loads)
        yield (
            f"{narrow} of {total} loads {facts.where} are narrower than 16 bytes a lane (at best {widest // 8}): "
            f"larger blocks along the contiguous dimension, or fewer than {count(facts.num_warps, 'warp')}"
        )


def _flat(facts: Facts) -> Iterator[str]:
    if facts.hot.flat:
        yield (
            f"{facts.hot.flat} flat accesses {facts.where} wait for memory and for LDS: the compiler could not tell "
            "which one a pointer means"
        )


def _matrix(facts: Facts) -> Iterator[str]:
    code, layouts, name = facts.code.everywhere, facts.layouts, facts.architecture.matrix.upper()
    if layouts.products and not code.matrix:
        yield (
            f"{layouts.products} tl.dot and no {name} instruction: the types or shapes of the operands have none on "
            f"{facts.architecture.name}; 16-bit operands with blocks of at least 16 do"
        )
    large = sum(number for name, number in code.matrix.items() if "32x32x" in name)
    if facts.architecture.name == "gfx942" and large and large == sum(code.matrix.values()):
        yield f"all {large} matrix instructions are 32x32: try matrix_instr_nonkdim=16, often faster on MI300"
    if facts.code.in_loops.moves_of_accumulators > sum(facts.code.in_loops.matrix.values()):
        yield (
            f"{facts.code.in_loops.moves_of_accumulators} moves between accumulators and registers in loops, beside "
            f"{sum(facts.code.in_loops.matrix.values())} matrix instructions: a smaller block of the result"
        )


def _lds(facts: Facts) -> Iterator[str]:
    loads = facts.hot.lds_loads
    total, narrow = sum(loads.values()), _below(loads, 64)
    if total >= 8 and narrow / total >= _SHARE:
        unswizzled = facts.layouts.plain_shared
        plain = f" ({count(unswizzled, 'layout')} of LDS without swizzling or padding)" if unswizzled else ""
        kpack = ", or try kpack=2" if facts.layouts.products and facts.architecture.name in _KPACK else ""
        yield (
            f"{narrow} of {total} LDS reads {facts.where} are narrower than b64{plain}: data is turned round on its "
            f"way; keep it the other way round in memory, or pad its LDS rows{kpack}; b128 is best"
        )
    trips = facts.layouts.round_trips_in_loops
    if trips:
        yield (
            f"{count(trips, 'change')} of layout in loops may go through LDS and back: keep to one layout (the same "
            "order of dimensions in loads, reductions and products)"
        )


def _waits(facts: Facts) -> Iterator[str]:
    inside = facts.code.in_loops
    loads = sum(inside.loads.values())
    if loads and facts.layouts.products_in_loops and inside.drains > 1 and facts.num_stages < 2:
        yield (
            f"{inside.drains} waits in loops are for all outstanding memory, with num_stages={facts.num_stages}: try "
            "num_stages=2, so that loads of the next round are under way"
        )


def _registers(facts: Facts) -> Iterator[str]:
    seen = facts.occupancy
    if facts.code.spills or seen.percent > _PLENTY:
        return
    if facts.code.given_vgprs > facts.code.vgprs:
        yield (
            f"it is given {facts.code.given_vgprs} registers and needs {facts.code.vgprs}, so that no more than "
            f"{seen.waves:g} waves fit: no waves_per_eu, or a larger one"
        )
        return
    for step in seen.steps:
        if len(seen.steps) == 1 and step.what == "registers" and 0 < step.needed < step.now <= _NEAR * step.needed:
            yield (
                f"{seen.next_step()}: so near to it, try waves_per_eu={math.ceil(seen.next_waves)} or a slightly "
                "smaller block"
            )
    if seen.steps and seen.waves < 1 and seen.workgroups:
        yield f"workgroups of {facts.num_warps} waves leave SIMDs empty ({seen.waves:g} waves a SIMD): more warps"


def _dies(facts: Facts) -> Iterator[str]:
    """Workgroups are dealt out to the dies in turns, so that neighbours never share an L2."""
    dies = max((device.dies for device in DEVICES if device.architecture == facts.architecture.name), default=1)
    layouts = facts.layouts
    if dies > 1 and layouts.products_in_loops and layouts.programs and dies not in layouts.remainders:
        yield (
            f"{dies} dies, each with its own L2, take workgroups in turns, and the kernel uses its program number as "
            f"it comes: renumber programs so that {dies} apart become neighbours (XCD-aware order), and group rows"
        )


def _atomics(facts: Facts) -> Iterator[str]:
    if facts.code.in_loops.atomics:
        yield (
            f"{count(facts.code.in_loops.atomics, 'atomic')} in loops: where several go to one place, add them up in "
            "registers or LDS first"
        )


RULES: Mapping[str, Callable[[Facts], Iterator[str]]] = {
    "spills": _spills,
    "fit": _fit,
    "coalescing": _coalescing,
    "matrix units": _matrix,
    "LDS": _lds,
    "load width": _width,
    "flat": _flat,
    "waits": _waits,
    "atomics": _atomics,
    "registers": _registers,
    "order": _dies,
}


def count(number: int, one: str) -> str:
    return f"{number} {one}{'' if number == 1 else 's'}"


def _below(accesses: Mapping[int, int], bits: int) -> int:
    return sum(number for wide, number in accesses.items() if 0 < wide < bits)


def _at(places: list[str]) -> str:
    return f" ({', '.join(places)})" if places else ""
