"""Write kernels: Triton for normalisation and gated activations, from the templates of the skill packs.

Never where Triton cannot run, and never in a lower precision than the code it replaces.
"""

from __future__ import annotations

from agent.context import RunContext
from agent.state import RunState, Update
from agent.steps.summing_up import climbing_step


def run(state: RunState, ctx: RunContext) -> Update:
    because = "" if ctx.platform.triton else "Triton cannot run on this device, so no kernel of it could be proven"
    return climbing_step(state, ctx, "write_kernels", because)
