"""Audit compute: drop work that need not be done.

Never changes what is computed: only copies, expansions and constants that are made again on every call.
"""

from __future__ import annotations

from agent.context import RunContext
from agent.state import RunState, Update
from agent.steps.summing_up import climbing_step


def run(state: RunState, ctx: RunContext) -> Update:
    return climbing_step(state, ctx, "audit_compute")
