"""What any other agent needs to work with the tools of a run: instructions, and the tools as JSON Schema."""

from __future__ import annotations

from typing import Any

from agent.llm.conversation import HANDING_IN
from agent.llm.prompt import METHOD, rules
from agent.skill_packs import Packs
from agent.step_names import STEPS
from agent.workbench import REGISTRY

FORMAT = 1


def exported(packs: Packs) -> dict[str, Any]:
    """`tools` are for chat.completions, `functions` the same for responses; the server is `agent mcp`."""
    tools = [tool.as_function() for tool in (*REGISTRY.tools.values(), *HANDING_IN)]
    method = packs.get(METHOD)
    return {
        "format": FORMAT,
        "instructions": rules(packs),
        "steps": {step: method.section(step) for step in STEPS},
        "tools": tools,
        "functions": [{"type": "function", **tool["function"]} for tool in tools],
        "mcp": {"command": "agent", "args": ["mcp"]},
    }
