"""What each of the ten steps could gain at most, by Amdahl's law on what it works on.

An upper bound: no change of the step can gain more, most gain less. What a step works on is taken for as fast as memory
and arithmetic allow where that is known, and for free where it is not; where products are put together, memory does not
count, since they may share what they read, or never write it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from tools.profiler.categories import CATEGORIES, PRODUCTS, Category
from tools.profiler.result import KernelRow, Profile, StepCeiling

_LIGHT: frozenset[Category] = frozenset(CATEGORIES) - PRODUCTS - {"communication"}
_ATTENTION = re.compile("att(ention|n)", re.IGNORECASE)  # in the name of a module


@dataclass(frozen=True)
class Aim:
    """What a step works on: categories, and whether it takes away launches."""

    step: str
    categories: frozenset[Category]
    launches: bool
    words: str
    whole: bool = False  # it may remove what it works on altogether
    together: bool = False  # it may put several into one, of which only the arithmetic stays
    bounded: bool = True  # it works on nothing else


AIMS: Sequence[Aim] = (
    Aim("audit_compute", _LIGHT, True, "copies, casts and what each call computes again", whole=True, bounded=False),
    Aim("write_kernels", _LIGHT, True, "norms, activations and other light kernels"),
    Aim(
        "fuse_projections",
        frozenset({"gemm"}),
        True,
        "products that share their input, and loops over experts",
        together=True,
    ),
    Aim("swap_attention", frozenset({"attention"}), True, "attention with its softmax, masks and copies", whole=True),
    Aim("compile_model", _LIGHT, True, "everything but products and attention", whole=True),
    Aim("route_gemm", frozenset({"gemm", "convolution"}), False, "products and convolutions"),
    Aim("capture_graph", frozenset(), True, "the time in which the device waits"),
)


# An audit may find any work needless, and the last step puts others together.
BOUNDED = frozenset(aim.step for aim in AIMS if aim.bounded)


def of(profile: Profile) -> list[StepCeiling]:
    """Nothing where nothing was seen: a call of which no part is known says nothing about any."""
    if profile.call_us <= 0 or not profile.kernels:
        return []
    waits_us = max(0.0, profile.call_us - profile.busy_us)
    found = []
    for aim in AIMS:
        mine = [row for row in profile.kernels if row.category in aim.categories]
        besides_us = waits_us if aim.launches else 0.0
        if aim.step == "swap_attention":
            besides_us += _written_out_us(profile)
        if aim.step == "fuse_projections":
            besides_us += _routing_us(profile)
        works_on_us = besides_us + sum(row.time_us for row in mine)
        share, all_of_it = (
            min(works_on_us - left_us, profile.call_us) / profile.call_us
            for left_us in (sum(_left_us(row, aim, profile) for row in mine), 0.0)
        )
        reason = _reason(aim, share, waits_us, profile)
        speedup = _speedup(share) if aim.bounded else None
        found.append(StepCeiling(step=aim.step, speedup=speedup, reason=reason, if_free=_speedup(all_of_it)))
    # products of batches may be those of scores, which fused attention does in part or not at all
    products = (row for row in profile.kernels if row.category in PRODUCTS and "bmm" not in row.op)
    share = 1.0 - sum(_arithmetic_us(row, profile) for row in products) / profile.call_us
    reason = f"{share:.0%} of a call could go: all but the arithmetic of products and attention"
    return [*found, StepCeiling(step="compose_stack", speedup=_speedup(share), reason=reason)]


def over_cases(profiles: Sequence[Profile]) -> list[StepCeiling]:
    """Of a workload of several cases, which are judged by the geometric mean."""
    if not all(profile.steps for profile in profiles):
        return []
    found = []
    for same in zip(*(profile.steps for profile in profiles), strict=True):
        first, _, words = same[0].reason.partition(": ")
        speedup = _mean(each.speedup for each in same)
        gains = [each.if_free if speedup is None else each.speedup for each in same]
        shares = [1.0 - 1.0 / gain for gain in gains if gain is not None]
        spread = f"{min(shares):.0%} to {max(shares):.0%} of a call"
        reason = f"{spread} could go, by case: {words or first}"
        if speedup is None:
            reason = f"{first}: {spread}, by case, are {words.partition(' are ')[2]}"
        free = _mean(each.if_free for each in same)
        found.append(StepCeiling(step=same[0].step, speedup=speedup, reason=reason, if_free=free))
    return found


def _mean(gains: Iterable[float | None]) -> float | None:
    known = list(gains)
    found = [gain for gain in known if gain is not None]
    return geometric_mean(found) if len(found) == len(known) else None


def on_faster(steps: Sequence[StepCeiling], step: str, gained: float) -> StepCeiling | None:
    """The ceiling of a step on a stack that is `gained` times as fast as what was profiled; None where it has none.

    What it can save is the same time as before, now of a shorter call; and no step gets below what is left at last.
    """
    by_name = {each.step: each for each in steps}
    found, whole = by_name.get(step), by_name.get("compose_stack")
    if found is None or whole is None or whole.speedup is None:
        return None
    if found.speedup is None:
        return found
    most = min(_speedup((1.0 - 1.0 / found.speedup) * gained), whole.speedup / gained)
    free = None if found.if_free is None else _speedup((1.0 - 1.0 / found.if_free) * gained)
    return found.model_copy(update={"speedup": max(1.0, most), "if_free": free})


def needed_us(row: KernelRow) -> float:
    """What it would take at the speed of light, per call; nothing where that is not known."""
    return row.time_us * min(1.0, row.speed_of_light) if row.speed_of_light is not None else 0.0


def _arithmetic_us(row: KernelRow, profile: Profile) -> float:
    """The same if memory took no time."""
    peak = profile.ceilings.peak_tflops.get(row.dtype)
    return row.time_us * min(1.0, row.tflops / peak) if row.tflops and peak else 0.0


def _left_us(row: KernelRow, aim: Aim, profile: Profile) -> float:
    """Of what a step works on, what it cannot take away."""
    if aim.whole:
        return 0.0
    return _arithmetic_us(row, profile) if aim.together else needed_us(row)


def _written_out_us(profile: Profile) -> float:
    """Of modules that are attention by their name, what is none of a fused kernel: products of scores among it.

    Products of batches, softmax and what is compiled for attention stand for it where they take more: a module of
    attention may be called anything.
    """
    inside = sum(module.time_us for module in profile.modules if _ATTENTION.search(module.name))
    fused = (row for row in profile.kernels if row.category == "attention" and _ATTENTION.search(row.module))
    parts = (row for row in profile.kernels if "bmm" in row.op or "softmax" in row.op or _beside_attention(row))
    return max(inside - sum(row.time_us for row in fused), sum(row.time_us for row in parts))


def _beside_attention(row: KernelRow) -> bool:
    return row.category in _LIGHT and bool(_ATTENTION.search(row.name))


def _routing_us(profile: Profile) -> float:
    """Of modules that choose and sort rows, what is no product: a loop over experts goes away with its copies."""
    routing = {row.module for row in profile.kernels if row.category == "moe and sorting"}
    return sum(row.time_us for row in profile.kernels if row.module in routing and row.category not in PRODUCTS)


def _speedup(share: float) -> float:
    """When this share of the time goes away: at most a thousand, for what cannot be told from all of it."""
    return 1.0 / max(1e-3, 1.0 - max(0.0, share))


def _reason(aim: Aim, share: float, waits_us: float, profile: Profile) -> str:
    waiting = f", {waits_us / profile.call_us:.0%} of it waiting" if aim.launches and waits_us > 0 else ""
    if not aim.bounded:
        return f"any work may turn out to be needless: {share:.0%} of a call are {aim.words}"
    return f"{share:.0%} of a call could go{waiting}: {aim.words}"
