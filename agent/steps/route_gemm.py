"""Route GEMM: choose the library and the solution of each matrix product by measurement.

Only where there is a choice: TunableOp is ROCm's.
"""

from __future__ import annotations

from agent.context import RunContext
from agent.state import RunState, Update
from agent.steps.summing_up import climbing_step


def run(state: RunState, ctx: RunContext) -> Update:
    because = (
        "" if ctx.platform.rocm else "TunableOp chooses between rocBLAS and hipBLASLt, and this device has neither"
    )
    return climbing_step(state, ctx, "route_gemm", because)
