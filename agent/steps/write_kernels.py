"""Write kernels: Triton for normalisation and gated activations, from the templates of the skill packs.

Never in a lower precision than the code it replaces. Where Triton cannot run, a model may still write C++.
"""

from __future__ import annotations

from agent.context import RunContext
from agent.state import RunState, Update
from agent.steps.summing_up import climbing_step


def run(state: RunState, ctx: RunContext) -> Update:
    return climbing_step(state, ctx, "write_kernels")
