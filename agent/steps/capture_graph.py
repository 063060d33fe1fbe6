"""Capture the graph: replay a whole call instead of launching its kernels one by one.

Never where shapes or addresses may change unseen: the capture falls back to the plain call.
"""

from __future__ import annotations

from agent.context import RunContext
from agent.state import RunState, Update
from agent.steps.summing_up import climbing_step


def run(state: RunState, ctx: RunContext) -> Update:
    because = (
        ""
        if ctx.platform.device == "cuda"
        else "a CPU has no graphs to capture: its calls are not launched on a device"
    )
    return climbing_step(state, ctx, "capture_graph", because)
