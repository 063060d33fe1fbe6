"""Machine code as a page for a terminal of 100 columns, and the same as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from agent.reporting.wording import count
from tools.isa.compile import Compilations, Compiled
from tools.isa.gate import faults_of
from tools.isa.instructions import Counts
from tools.isa.same_code import Difference
from tools.plain_text import one_line

WIDTH = 100
_TOPIC = 13
_COLUMNS = "{:<9}{:>5} {:>4} {:>6} {:>7} {:>7} {:>6}  {}"


def lines(found: Compilations) -> Iterator[str]:
    """One kernel on one architecture in full; several as a table, with what is to be tried on each."""
    if len(found.results) == 1:
        yield from _page(found.results[0], found.triton)
        return
    shown = None
    for one in found.results:
        if one.variant != shown:
            shown = one.variant
            yield from ("", *_head(one)) if one is not found.results[0] else _head(one)
            yield _COLUMNS.format("", "vgprs", "acc", "spills", "scratch", "LDS", "waves", "limited by")
        yield from _row(one)
    yield from _shared_advice(found.results)


def difference_lines(found: Mapping[str, Difference]) -> Iterator[str]:
    for name, each in found.items():
        yield from _wrapped(f"{name:<9}", each.told())
    if all(each.same for each in found.values()):
        yield "The compiler makes one thing of both: there is nothing to measure, and the attempt ends here."


def as_json(found: Compilations) -> dict[str, Any]:
    return {"triton": found.triton, "results": [_as_dict(one) for one in found.results]}


def _as_dict(one: Compiled) -> dict[str, Any]:
    head = {"architecture": one.architecture.name, "variant": one.variant.model_dump(), "error": one.error}
    if one.error:
        return head
    return head | {
        "launch": one.outcome.model_dump(exclude={"error"}),
        "code": asdict(one.code),
        "layouts": asdict(one.layouts),
        "occupancy": asdict(one.occupancy) | {"limit": one.occupancy.limit(), "next": one.occupancy.next_step()},
        "faults": faults_of(one),
        "advice": [asdict(advice) for advice in one.advice()],
    }


def _head(one: Compiled) -> Iterator[str]:
    variant = one.variant
    config = f", {one_line(variant.config, 60)}" if variant.config else ""
    yield f"{one_line(variant.kernel, 40)} ({one_line(variant.file.rpartition('/')[2], 30)}:{variant.line}){config}"
    types = [
        f"{name} {kind}{' :16' if name in variant.aligned and not kind.startswith('*') else ''}"
        for name, kind in variant.signature.items()
        if kind != "constexpr"
    ]
    values = [f"{name}={value}" for name, value in (*variant.constants.items(), *variant.options.items())]
    yield from _wrapped("  ", one_line("; ".join((", ".join(types), ", ".join(values)))))
    for note in variant.notes:
        yield from _wrapped("  ", one_line(note))


def _page(one: Compiled, triton: str) -> Iterator[str]:
    yield from _head(one)
    if one.error:
        yield from _line(one.architecture.name, one.error)
        return
    yield f"  {one.architecture.name}, by Triton {one_line(triton, 20)} in {one.outcome.seconds:.1f} s; nothing was run"
    code, seen, layouts = one.code, one.occupancy, one.layouts
    every, inside = code.everywhere, code.in_loops
    kinds = f"{code.arch_vgprs} arch, {code.acc_vgprs} acc"
    yield from _line("registers", f"{code.vgprs} of a lane ({kinds}{_padded(one)}), {code.sgprs} scalar")
    yield from _line(
        "spills", f"{code.vgpr_spills} vector, {code.sgpr_spills} scalar; {code.scratch_bytes} bytes of scratch a lane"
    )
    yield from _line(
        "LDS",
        f"{one.lds_bytes} bytes of {one.architecture.lds_bytes} a workgroup of {count(one.outcome.num_warps, 'wave')}",
    )
    yield from _line(
        "occupancy", f"{seen.waves:g} of {seen.most} waves a SIMD ({seen.percent:.0f} %), limited by {seen.limit()}"
    )
    if seen.steps:
        yield from _line("", seen.next_step())
    for topic, widths, looped in (
        ("loads", every.loads, inside.loads),
        ("stores", every.stores, inside.stores),
        ("LDS reads", every.lds_loads, inside.lds_loads),
        ("LDS writes", every.lds_stores, inside.lds_stores),
    ):
        straight = f"; {every.into_lds} loads go straight into LDS" if topic == "LDS writes" and every.into_lds else ""
        yield from _line(topic, f"{_widths(widths)}{_loops(inside, _widths(looped))}{straight}")
    yield from _line("matrix", f"{_matrix(every.matrix)}{_loops(inside, _matrix(inside.matrix))}")
    yield from _line("waits", f"{_waits(every)}{_loops(inside, _waits(inside))}")
    yield from _line(
        "layouts",
        f"{count(layouts.conversions, 'change')} of layout, {layouts.round_trips} taken for a "
        f"round trip through LDS ({layouts.round_trips_in_loops} in loops)",
    )
    others = {"atomics": every.atomics, "flat": every.flat, "dot": every.dots, "scratch": every.scratch}
    loops = f"{inside.instructions} in {count(code.loops, 'loop')}" if code.loops else "no loop"
    yield from _line(
        "code",
        f"{count(every.instructions, 'instruction')}, {loops}"
        + "".join(f", {number} {name}" for name, number in others.items() if number),
    )
    for number, advice in enumerate(one.advice(), 1):
        yield from _line("to try" if number == 1 else "", f"{number}. {advice.topic}: {advice.text}")


def _padded(one: Compiled) -> str:
    if one.code.given_vgprs <= one.code.vgprs:
        return ""
    asked = one.variant.options.get("waves_per_eu")
    return f"; padded to {one.code.given_vgprs}{f' by waves_per_eu={asked}' if asked else ''}"


def _row(one: Compiled) -> Iterator[str]:
    if one.error:
        yield from _wrapped(f"{one.architecture.name:<9}", one_line(one.error))
        return
    code, seen = one.code, one.occupancy
    yield _COLUMNS.format(
        one.architecture.name,
        code.vgprs,
        code.acc_vgprs,
        code.vgpr_spills + code.sgpr_spills,
        code.scratch_bytes,
        one.lds_bytes,
        f"{seen.waves:g}/{seen.most}",
        seen.limit(),
    )


def _shared_advice(results: tuple[Compiled, ...]) -> Iterator[str]:
    """What is said of several architectures in the same words is said once."""
    by_text: dict[tuple[str, str], list[str]] = {}
    for one in results:
        if not one.error:
            for advice in one.advice():
                by_text.setdefault((advice.topic, advice.text), []).append(one.architecture.name)
    if by_text:
        yield ""
    for (topic, text), names in by_text.items():
        yield from _wrapped("  ", f"{', '.join(dict.fromkeys(names))}: {topic}: {text}")


def _widths(accesses: Mapping[int, int]) -> str:
    """`16 of b128, 2 of b16`, the widest first; in bits of one lane, as instructions are named."""
    found = sorted(accesses.items(), reverse=True)
    return ", ".join(f"{number} of {f'b{bits}' if bits else 'other width'}" for bits, number in found) or "none"


def _matrix(instructions: Mapping[str, int]) -> str:
    return ", ".join(f"{number} × {name}" for name, number in instructions.items()) or "none"


def _waits(counts: Counts) -> str:
    return f"{counts.waits}, {counts.drains} for all of memory, {counts.lds_drains} for all of LDS"


def _loops(inside: Counts, text: str) -> str:
    return f"; in loops {text}" if inside.instructions else ""


def _line(topic: str, text: str) -> Iterator[str]:
    return _wrapped(f"  {topic:<{_TOPIC - 2}}", one_line(text))


def _wrapped(head: str, text: str) -> Iterator[str]:
    yield from textwrap.wrap(text, WIDTH, initial_indent=head, subsequent_indent=" " * len(head)) or [head.rstrip()]
