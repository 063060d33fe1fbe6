"""The ten steps, one module each; knowing one is knowing all.

A step looks whether there is anything to do, says why in one line when there is not, and else asks for the climb. It
is entered again when its climb is over, and then sums up.
"""

from __future__ import annotations

from collections.abc import Callable

from agent.context import RunContext
from agent.state import RunState, Update
from agent.step_names import STEPS
from agent.steps import (
    audit_compute,
    capture_graph,
    compile_model,
    compose_stack,
    fuse_projections,
    locate_layers,
    profile_baseline,
    route_gemm,
    swap_attention,
    write_kernels,
)

STEP_NODES: dict[str, Callable[[RunState, RunContext], Update]] = {
    "profile_baseline": profile_baseline.run,
    "audit_compute": audit_compute.run,
    "locate_layers": locate_layers.run,
    "write_kernels": write_kernels.run,
    "fuse_projections": fuse_projections.run,
    "swap_attention": swap_attention.run,
    "compile_model": compile_model.run,
    "route_gemm": route_gemm.run,
    "capture_graph": capture_graph.run,
    "compose_stack": compose_stack.run,
}
# steps that propose candidates, in order; compose_stack is the last
CLIMBING = tuple(name for name in STEPS if name not in ("profile_baseline", "locate_layers"))
