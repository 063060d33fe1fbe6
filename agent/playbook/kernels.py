"""Write kernels: Triton kernels from templates for normalisation and gated activations."""

from __future__ import annotations

from functools import partial

from agent.playbook.drafts import Answer, Drafts, gain_without, percent, places
from agent.proposers import ProposalRequest
from tools.rewrite import kernels


def propose(request: ProposalRequest) -> Answer:
    if not request.platform.triton:
        return [], "Triton cannot run on this device"
    drafts = Drafts(request, "write_kernels")
    for site in kernels.find(request.observation):
        drafts.add(
            site,
            f"{kernels.NAMES[site.kind]} of {site.module_class or site.file} as one Triton kernel",
            f"{places(site)} reads and writes its tensor several times, {site.detail['count']} times in a call "
            f"({percent(site.share)}). One kernel reads it once.",
            partial(kernels.rewrite, request.tree, site),
            gain=gain_without(site.share, 0.6),
        )
    return drafts.answer("no RMS normalisation and no gated activation was seen")
