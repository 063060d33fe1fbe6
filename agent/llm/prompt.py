"""What a model is told before it starts: the rules, the step, and what is known. The rules are the same for all calls.

All words of advice come from the skill packs. What comes from the target or its profile is marked as data.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from agent.context import RunContext, stack_profile
from agent.llm import Message
from agent.reporting.wording import count
from agent.skill_packs import Packs
from tools.judging.worker import WorkerFault
from tools.plain_text import one_line
from tools.profiler import text as profile_text
from tools.registry import cut
from tools.registry.marks import marked

IDEA = 400  # characters of a kept change's rationale
RATCHET, METHOD = "ratchet", "amd-kernel-optimization"


def opening(ctx: RunContext, step: str) -> list[Message]:
    """The first messages of a step's conversation."""
    packs = Packs.of(ctx.config.skills)
    return [{"role": "system", "content": rules(packs)}, {"role": "user", "content": task(ctx, step)}]


def rules(packs: Packs) -> str:
    """The same for every step and every run of one version."""
    how = packs.get(RATCHET).section("Working on a candidate")
    return f"{how}\n\nSkill packs that you can read with the tool `skill`, by `pack/file`:\n\n{packs.listed()}"


def in_text(packs: Packs, tools: Sequence[dict[str, Any]]) -> str:
    """How a model without tool calls of its own calls them."""
    listed = [json.dumps(tool["function"]) for tool in tools]
    return "\n".join([packs.get(RATCHET).section("Calling tools in text"), "", *listed])


def task(ctx: RunContext, step: str) -> str:
    """What there is to know for one step, on the stack as it is."""
    platform, workload, packs = ctx.platform, ctx.workload, Packs.of(ctx.config.skills)
    cases = [{"shape": case.shape, "phase": case.phase} for case in workload.cases]
    where = "an AMD GPU (ROCm)" if platform.rocm else "an NVIDIA GPU" if platform.device == "cuda" else "a CPU"
    stacked = ctx.ledger.stacked()
    tried = []
    for row in ctx.ledger.rows:
        gain = "" if row.speedup is None else f", {row.speedup}"
        # of what is on the stack, the author's words: a step's model knows nothing of the steps before
        idea = f". {one_line(row.rationale, IDEA)}" if row.attempt_id in stacked and row.rationale else ""
        tried.append(f"- {row.step}: {row.title}: {row.verdict}{gain}. {row.reason}{idea}")
    judged = sum(row.step == step and row.is_of_its_step for row in ctx.ledger.rows)
    bound = ctx.records.at_most(step)
    ceiling = []
    if bound is not None and bound.speedup is not None:
        ceiling = [f"By the profile this step can make a call at most {bound.speedup:.2f}x faster ({bound.reason})."]
    kernels = "Triton kernels can run" if platform.triton else "Triton kernels cannot run here"
    lines = [
        f"Your step is `{step}`. From the skill pack {METHOD}:",
        packs.get(METHOD).section(step),
        f"The repository runs on {where} with PyTorch {_version(platform.torch)}; {kernels}. "
        f"It is called {'with' if workload.mode == 'training' else 'without'} gradients, with "
        f"{count(ctx.config.threads, 'thread')}. Here a gain below {ctx.referee.delta:.1%} of a call cannot be shown.",
        f"At most {count(ctx.config.attempts, 'candidate')} of a step are judged; of this one {judged} were.",
        f"The entry is `{ctx.config.entry}`. Cases that are timed, each as important as the others:",
        _data(json.dumps(cases)),
        *ceiling,
        "Where the time of a call goes, on the stack as it is:",
        _data(_profile(ctx)),
        *_places(ctx),
        "What was tried in this run:",
        _data("\n".join(tried) or "nothing"),
        "How steps of this run ended:",
        _data("\n".join(f"- {name}: {reason}" for name, reason in ctx.ended_steps.items()) or "none has yet"),
    ]
    return "\n\n".join(lines)


def _version(told: str) -> str:
    """As the target's process told it, if it is one: it stands outside of all marks."""
    return told if re.fullmatch(r"\d[\w.+]{0,39}", told, re.ASCII) else "of some version"


def _places(ctx: RunContext) -> list[str]:
    """Where in the sources patterns lie that the playbook knows."""
    try:
        sites = ctx.proposals.sites()
    except WorkerFault:
        return []
    found = [f"- {site.kind}: {site.file}:{site.line}" for site in sites[:40]]
    return ["Patterns that were recognised in the sources:", _data("\n".join(found))] if found else []


def _profile(ctx: RunContext) -> str:
    try:
        return profile_text.render(ctx.builds.profile(stack_profile(ctx.stack.top), ctx.builds.top()), advice=False)
    except WorkerFault as fault:
        return f"it cannot be profiled: {fault}"


def _data(said: str) -> str:
    return marked("data", cut(said))
