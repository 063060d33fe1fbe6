"""What became of a candidate, as a proposer is told of it."""

from __future__ import annotations

from collections.abc import Collection

from agent.proposers import PastAttempt
from agent.records.ledger import LedgerRow
from tools.registry import cut
from tools.registry.marks import marked


def past_of(row: LedgerRow, stacked: Collection[str]) -> PastAttempt:
    """`stacked`: the attempts on the stack now."""
    compiled = (row.evidence.get("correctness") or {}).get("compiled") or {}
    timed = row.evidence.get("confirmation") or row.evidence.get("screen") or {}
    by_case = tuple(float(case["median"]) for case in timed.get("cases") or [])
    first_call_s = float(compiled.get("first_call_s") or 0.0)
    return PastAttempt(
        row.step,
        row.title,
        row.verdict,
        row.reason,
        row.diff_digest,
        row.key,
        row.role,
        first_call_s=first_call_s,
        speedup=row.speedup,
        by_case=by_case,
        stacked=row.attempt_id in stacked,
        unproven_below=bool(row.below),
    )


def verdict_on(past: PastAttempt) -> str:
    """With the figures that it rests on, which say what to mend. The reason is marked as data: it may hold what the
    target raised, what its tests are called, or what a reviewer says.
    """
    cases = f", by case {', '.join(f'{each:.3f}x' for each in past.by_case)}" if len(past.by_case) > 1 else ""
    figures = f" Measured: {past.speedup}{cases}." if past.speedup is not None else ""
    return f"The verdict on your candidate: {past.verdict}.{figures}\n{marked('data', cut(past.reason))}"
