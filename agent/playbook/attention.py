"""Swap attention: softmax(Q K^T) V by hand becomes torch's fused attention."""

from __future__ import annotations

from functools import partial

from agent.playbook.drafts import Answer, Drafts, gain_without, percent, places
from agent.proposers import ProposalRequest
from tools.candidate import Site
from tools.rewrite import CannotRewrite, attention

_HOW = {
    "gqa": "key and value heads shared by several query heads",
    "repeated": "key and value heads repeated",
    "plain": "",
}


def propose(request: ProposalRequest) -> Answer:
    drafts = Drafts(request, "swap_attention")
    for site in attention.find(request.observation):
        for variant in _variants(drafts, site):
            how = f", {_HOW[variant]}" if _HOW[variant] else ""
            drafts.add(
                site,
                f"Fused attention in {site.module_class or site.file}{how}",
                f"{places(site)} multiplies, scales, masks and normalises the scores in steps of their own, "
                f"{site.detail['count']} times in a call ({percent(site.share)}). One fused call does it without "
                "writing the scores to memory.",
                partial(attention.rewrite, request.tree, site, variant),
                gain=gain_without(site.share, 0.5),
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
