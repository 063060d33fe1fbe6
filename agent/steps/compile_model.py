"""Compile the model: torch.compile with the settings that are safe on this platform.

Never edits the entry script; where only that would help, the report says so as advice.
"""

from __future__ import annotations

from agent.context import RunContext
from agent.state import RunState, Update
from agent.steps.summing_up import climbing_step


def run(state: RunState, ctx: RunContext) -> Update:
    return climbing_step(state, ctx, "compile_model")
