"""What became of the changes of an earlier run when they were judged afresh. By the ledger; it judges nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent.proposers.replay import PastChange
from agent.records.attempts import leave_out_id
from agent.records.ledger import LedgerRow
from agent.reporting.report import Afresh

NOT_JUDGED = "not judged"


def judged(
    changes: Sequence[PastChange], rows: Sequence[LedgerRow], stacked: Sequence[str], reasons: Mapping[str, str]
) -> list[Afresh]:
    """One for each change. `stacked`: the attempts on the stack now; `reasons`: why each step ended."""
    return [_outcome(change, rows, stacked, reasons) for change in changes]


def _outcome(
    change: PastChange, rows: Sequence[LedgerRow], stacked: Sequence[str], reasons: Mapping[str, str]
) -> Afresh:
    candidate = change.candidate
    told = Afresh(
        step=candidate.step,
        title=candidate.title,
        then=change.speedup,
        outcome=NOT_JUDGED,
        why=reasons.get(candidate.step, ""),
    )
    for row in (row for row in rows if row.key == candidate.key and row.role != "leave_one_out"):
        if row.attempt_id in stacked:  # also what was kept with another change
            return told.model_copy(update={"now": row.speedup, "outcome": "kept", "why": row.reason})
        dropped = [
            other for other in rows if other.attempt_id == leave_out_id(row.attempt_id) and other.verdict == "kept"
        ]
        outcome, why = str(row.verdict), row.reason
        if row.verdict == "kept" or dropped:
            outcome, why = "dropped", dropped[-1].reason if dropped else "the whole was given up"
        told = told.model_copy(update={"now": row.speedup, "outcome": outcome, "why": why})
    return told
