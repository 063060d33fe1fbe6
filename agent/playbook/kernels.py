"""Write kernels: Triton kernels from templates for norms, gates, rotary embeddings and the top of a softmax."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import PurePosixPath

from agent.playbook.drafts import Answer, Drafts, gain_without, percent, places
from agent.proposers import ProposalRequest
from tools.candidate import Site
from tools.rewrite import fused_kernels, kernels, launches

STEP = "write_kernels"


def _name(names: Mapping[str, str], site: Site) -> str:
    by = f" by {_layer(site)}" if _layer(site) else ""
    return f"{names[site.kind]}{by}"


def _variant(site: Site) -> str:
    return " ".join(filter(None, (site.kind, _layer(site))))


def _layer(site: Site) -> str:
    """The layer that an addition goes into: a class may have two of them."""
    return str(site.detail["attribute"]) if site.kind in ("add_rms", "add_layer") else ""


def propose(request: ProposalRequest) -> Answer:
    if not request.platform.triton:
        return [], "Triton cannot run on this device, so no kernel of it could be proven"
    drafts = Drafts(request, STEP)
    found = [(kernels, site) for site in kernels.find(request.observation)]
    found += [(fused_kernels, site) for site in fused_kernels.find(request.observation)]
    for rewriter, site in sorted(found, key=lambda pair: -(pair[1].share or 0)):
        drafts.add(
            site,
            "kernels",
            f"{_name(rewriter.NAMES, site)} of {drafts.subject(site)} as one Triton kernel",
            f"{places(site)} reads and writes its tensor several times, {site.detail['count']} times in a call "
            f"({percent(site.share)}). One kernel reads it once.",
            partial(rewriter.rewrite, request.tree, site),
            variant=_variant(site),
            gain=gain_without(site.share, 0.6),
            at_stake=0.6 * (site.share or 0.0),
        )
    ours = launches.find(request.base)
    if ours and request.tune is not None:
        tune = request.tune
        drafts.add(
            Site(kind="launch", file=str(PurePosixPath(ours[0]).parent), line=1, line_end=1),
            "launches",
            "Launch our kernels as is measured to be the fastest on this device",
            "How many warps and elements a program should have differs between devices and sizes. Each size that was "
            "seen is measured; others are launched by the kernel's own rule.",
            lambda: launches.rewrite(request.base, tune()),
        )
    return drafts.answer("no norm, gate, rotary embedding or top of a softmax was seen that a template computes")
