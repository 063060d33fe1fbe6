"""Fuse projections: linear layers that read the same tensor become one matrix product.

Never renames or replaces a parameter: checkpoints of the original load, and follow.
"""

from __future__ import annotations

from agent.context import RunContext
from agent.state import RunState, Update
from agent.steps.summing_up import climbing_step


def run(state: RunState, ctx: RunContext) -> Update:
    return climbing_step(state, ctx, "fuse_projections")
