"""What a kept change costs those who merge it, read off its evidence: for its commit, and for the report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MIB = 1 << 20


def told(evidence: Mapping[str, Any]) -> list[str]:
    """In sentences; none of what was not measured."""
    checked, timed = evidence.get("correctness") or {}, evidence.get("comparison") or {}
    used = timed.get("long_use") or {}
    parts, compiled = [_cost(name, *pair) for name, pair in (used.get("costs") or {}).items()], checked.get("compiled")
    if compiled:
        first_s, saved_s = compiled["first_call_s"], saved_by_a_call_s(evidence)
        after = f", paid for after {first_s / saved_s:,.0f}" if saved_s > 0 else ""
        parts.append(f"a first call of {first_s:.1f} s{after}")
    lines = [f"Costs: {'; '.join(parts)}."] if parts else []
    if slower := used.get("slower_sizes"):
        sizes = ", ".join(f"{name} {ratio:.2f} times as long" for name, ratio in slower.items())
        lines.append(f"Slower for sizes that are not declared: {sizes}.")
    if preferred := checked.get("preferences"):
        lines.append(f"Sets for all of the process: {', '.join(preferred)}.")
    return lines


def saved_by_a_call_s(evidence: Mapping[str, Any]) -> float:
    """What a call of the first shape takes less than before; 0 where that was not measured."""
    timed = evidence.get("comparison") or {}
    before, after = timed.get("incumbent_us") or [0.0], timed.get("candidate_us") or [0.0]
    return float(before[0] - after[0]) / 1e6


def _cost(name: str, before: float, after: float) -> str:
    if name == "start_cpu_s":
        return f"starting takes {after:.1f} s of CPU time, not {before:.1f}"
    kind = name.partition("_")[0]
    return f"at most {after / _MIB:,.0f} MiB of {kind} memory, not {before / _MIB:,.0f}"
