"""Route GEMM: choose library, kernel and layout of matrix products and convolutions, where there is a choice."""

from __future__ import annotations

from agent.context import RunContext
from agent.state import RunState, Update
from agent.steps.summing_up import climbing_step


def run(state: RunState, ctx: RunContext) -> Update:
    return climbing_step(state, ctx, "route_gemm")
