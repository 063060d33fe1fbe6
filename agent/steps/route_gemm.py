"""Route GEMM: choose the library and the solution of each matrix product by measurement, where there is a choice."""

from __future__ import annotations

from agent.context import RunContext
from agent.state import RunState, Update
from agent.steps.summing_up import climbing_step


def run(state: RunState, ctx: RunContext) -> Update:
    because = "" if ctx.platform.device == "cuda" else "a CPU has one library for matrix products"
    return climbing_step(state, ctx, "route_gemm", because)
