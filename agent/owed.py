"""Guarantees that hold even when the time budget is used up: no stack ends slower than one line of torch.compile."""

from __future__ import annotations

import math

from agent.context import RunContext
from agent.records import measurements

USED_UP = "the time budget was used up"


def out_of_time(ctx: RunContext, step: str) -> bool:
    """Whether nothing more may be tried in this step."""
    return ctx.budget.used_up() and not owes_a_try(ctx, step)


def owes_a_try(ctx: RunContext, step: str) -> bool:
    """One try of compile_model is owed where plain torch.compile pays, on nothing but what was proven."""
    known = measurements.session_start(ctx.run_dir)
    if step != "compile_model" or known is None or not known.compile_pays(ctx.referee.delta):
        return False
    rows = [row for row in ctx.ledger.rows if row.step == step]
    return not any(row.verdict == "kept" or not row.below for row in rows)


def behind_one_line(ctx: RunContext) -> bool:
    """Whether the changes on the stack gained less, together, than the best plain torch.compile."""
    known = measurements.session_start(ctx.run_dir)
    best = known.best() if known is not None else None
    if best is None:
        return False
    rows = [ctx.ledger.find(name) for name in ctx.ledger.stacked()]
    gained = math.prod(row.speedup.median for row in rows if row is not None and row.speedup is not None)
    delta = ctx.referee.delta
    return gained * (1 + delta) < best.interval(delta).median
