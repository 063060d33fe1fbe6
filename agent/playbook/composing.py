"""Compose: what was right but did nothing alone is tried again on the final stack, alone and together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from agent.playbook import projections as fusing
from agent.playbook.drafts import Answer, Drafts
from agent.proposers import ProposalRequest
from tools.candidate import Candidate, Key
from tools.rewrite import projections

STEP = "compose_stack"
RETRIED = ("neutral", "slower", "broken")  # verdicts of what may gain on another stack
Step = Callable[[ProposalRequest], Answer]


def propose(request: ProposalRequest, steps: Sequence[Step]) -> Answer:
    """`steps` are the steps before this one."""
    drafts = Drafts(request, STEP)
    fresh = replace(request, attempts=(), tune=None)
    tried = [a for a in request.attempts if a.step != STEP]
    # what was wrong on changes that were given up may be right without them
    retried = {a.key for a in tried if a.verdict in RETRIED or (a.verdict == "wrong" and a.unproven_below)}
    retried -= {a.key for a in request.attempts if a.stacked or (a.verdict == "kept" and a.role != "leave_one_out")}
    compiled = any(a.step == "compile_model" and a.verdict == "kept" for a in request.attempts)
    for step in steps:
        for candidate in step(fresh)[0]:
            if compiled and (candidate.step == "compile_model" or candidate.key.rewriter == "projections"):
                # one way to compile was kept over the others, and trying one takes minutes; and compiled code calls
                # layers one by one
                continue
            if candidate.key.rewriter == "together":
                continue  # once is enough
            if candidate.key in retried and not drafts.was_tried(candidate.key, role="again"):
                drafts.candidates.append(again(candidate))
    if not compiled:
        _together(drafts, retried)
    return drafts.answer("everything that was tried is in the stack, or was wrong")


def again(candidate: Candidate) -> Candidate:
    """The candidate as the last step tries it on the whole stack, timed by itself."""
    return candidate.model_copy(update={"step": STEP, "role": "again"})


def _together(drafts: Drafts, retried: set[Key]) -> None:
    """All projections at once: each saves too little alone to be seen, where calls are short."""
    sites = [
        s
        for s in projections.find(drafts.request.observation)
        if fusing.key(s) in retried and not drafts.out_of_reach(s)
    ]
    if len(sites) < 2 or len({s.file for s in sites}) > 1:
        return
    drafts.add(
        sites[0].model_copy(update={"module_class": ""}),
        "projections",
        "Run all layers with a common input as one matrix multiplication each",
        " ".join(fusing.rationale(site) for site in sites),
        partial(projections.rewrite, drafts.request.tree, sites),
        variant="all",
    )
    # what holds both halves is tried first: if it is kept, neither is left to try alone
    drafts.candidates.sort(key=lambda c: c.role == "again")
