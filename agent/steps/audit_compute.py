"""Audit compute: drop work that need not be done.

Never changes what is computed: only copies, expansions and constants that are made again on every call.
"""

from __future__ import annotations

from agent.context import RunContext
from agent.owed import out_of_time
from agent.records.run_records import AUDITED
from agent.state import RunState, Update
from agent.steps.summing_up import climbing_step

STEP = "audit_compute"


def run(state: RunState, ctx: RunContext) -> Update:
    update = climbing_step(state, ctx, STEP)
    ended = update.get("results", {}).get(STEP)
    if ended is not None and ended["kept"] and not out_of_time(ctx, STEP):
        ctx.display.subject = "what is left"
        ctx.builds.profile(AUDITED, ctx.builds.top())  # less is left for the steps to come than the original says
    return update
