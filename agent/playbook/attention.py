"""Swap attention: softmax(Q K^T) V by hand becomes torch's fused attention, and on a GPU each shape of that takes the
kernel that is measured to be the fastest.
"""

from __future__ import annotations

from functools import partial

from agent.playbook.drafts import Answer, Drafts, gain_without, percent, places
from agent.proposers import ProposalRequest
from tools.candidate import Site
from tools.rewrite import CannotRewrite, attention, route_attention

STEP = "swap_attention"
ROUTED_SHARE = 0.1  # of a call; with less the choice of a kernel is not worth a candidate
_HOW = {
    "gqa": "key and value heads shared by several query heads",
    "repeated": "key and value heads repeated",
    "plain": "",
}


def propose(request: ProposalRequest) -> Answer:
    drafts = Drafts(request, STEP)
    for site in attention.find(request.observation):
        for variant in _variants(drafts, site):
            how = f", {_HOW[variant]}" if _HOW[variant] else ""
            drafts.add(
                site,
                "attention",
                f"Fused attention in {drafts.subject(site)}{how}",
                f"{places(site)} multiplies, scales, masks and normalises the scores in steps of their own, "
                f"{site.detail['count']} times in a call ({percent(site.share)}). One fused call does it without "
                "writing the scores to memory.",
                partial(attention.rewrite, request.tree, site, variant),
                variant=variant,
                gain=gain_without(site.share, 0.5),
            )
    for site in route_attention.find(request.observation) if request.platform.device == "cuda" else ():
        if (site.share or 0.0) >= ROUTED_SHARE:
            drafts.add(
                site,
                "route_attention",
                f"Attend in `{drafts.code(site)}` of {site.file} with the kernel that is measured to be the fastest",
                f"{places(site)} takes {percent(site.share)}, by the kernel that PyTorch chooses by a rule. Which one "
                "is the fastest differs from shape to shape. Each new shape is measured once.",
                partial(route_attention.rewrite, request.tree, site),
                at_stake=site.share or 0.0,
                variant=drafts.code(site),
            )
    fused = any(record.fused for record in request.observation.attention)
    return drafts.answer("all attention seen is fused already" if fused else "no attention was seen")


def _variants(drafts: Drafts, site: Site) -> list[str]:
    if drafts.out_of_reach(site):
        return ["plain"]
    try:
        return attention.variants(drafts.request.tree, site)
    except CannotRewrite as reason:
        drafts.reasons.append(f"the attention at {site.file}:{site.line}: {reason}")
        return []
