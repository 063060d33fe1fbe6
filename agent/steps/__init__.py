"""The ten steps. Three have a module, seven are rows of one table: they ask for the climb and sum it up.

A step with nothing to do says why in one line; otherwise it asks for the climb. It is entered again when its climb is
over, and then sums up.
"""

from __future__ import annotations

from collections.abc import Callable

from agent.context import RunContext
from agent.records.run_records import AUDITED
from agent.state import RunState, Update
from agent.step_names import STEPS
from agent.steps import compile_model, compose_stack, locate_layers, profile_baseline
from agent.steps.summing_up import climbing_step

Node = Callable[[RunState, RunContext], Update]


def _climbs(step: str, nothing_because: Callable[[RunContext], str] = lambda ctx: "") -> Node:
    def run(state: RunState, ctx: RunContext) -> Update:
        return climbing_step(state, ctx, step, nothing_because(ctx))

    return run


def _no_graphs(ctx: RunContext) -> str:
    on_gpu = ctx.platform.device == "cuda"
    return "" if on_gpu else "a CPU has no graphs to capture: its calls are not launched on a device"


def _audit(state: RunState, ctx: RunContext) -> Update:
    update = climbing_step(state, ctx, "audit_compute")
    ended = update.get("results", {}).get("audit_compute")
    if ended is not None and ended["kept"] and not ctx.budget.used_up():
        ctx.display.subject = "what is left"
        ctx.builds.profile(AUDITED, ctx.builds.top())  # less is left for the steps to come than the original says
    return update


STEP_NODES: dict[str, Node] = {
    "profile_baseline": profile_baseline.run,
    # work that need not be done: copies, expansions and constants that are made again on every call
    "audit_compute": _audit,
    "locate_layers": locate_layers.run,
    # Triton for normalisation and gated activations, never in a lower precision than the code it replaces
    "write_kernels": _climbs("write_kernels"),
    # one matrix product for linear layers that read the same tensor; no parameter is renamed or replaced
    "fuse_projections": _climbs("fuse_projections"),
    # a fused backend for softmax(QK^T)V, with the same mask, scale and dtype
    "swap_attention": _climbs("swap_attention"),
    "compile_model": compile_model.run,
    # library, kernel and layout of matrix products and convolutions
    "route_gemm": _climbs("route_gemm"),
    # replay of a whole call; falls back to the plain call where shapes or addresses change
    "capture_graph": _climbs("capture_graph", _no_graphs),
    "compose_stack": compose_stack.run,
}
# steps that propose candidates, in order; compose_stack is the last
CLIMBING = tuple(name for name in STEPS if name not in ("profile_baseline", "locate_layers"))
