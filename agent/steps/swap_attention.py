"""Swap attention: replace hand-written softmax(QK^T)V by a fused backend.

Never changes the mask, the scale or the dtype.
"""

from __future__ import annotations

from agent.context import RunContext
from agent.state import RunState, Update
from agent.steps.summing_up import climbing_step


def run(state: RunState, ctx: RunContext) -> Update:
    return climbing_step(state, ctx, "swap_attention")
