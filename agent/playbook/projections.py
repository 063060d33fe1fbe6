"""Fuse projections: layers that were given the same tensor, and experts in a loop, become one matrix multiplication."""

from __future__ import annotations

from functools import partial

from agent.playbook.drafts import Answer, Drafts, gain_without, key_of, listed, percent, places
from agent.proposers import ProposalRequest
from tools.candidate import Key, Site
from tools.rewrite import experts, projections

STEP = "fuse_projections"


def propose(request: ProposalRequest) -> Answer:
    drafts = Drafts(request, STEP)
    for site in experts.find(request.tree, request.observation):
        drafts.add(
            site,
            "experts",
            f"Run the experts of {site.module_class} together",
            f"{places(site)} looks up the rows of each expert by itself, and calls it for few of them "
            f"({percent(site.share)} with everything around the loop). Sorted by expert once, all rows go through the "
            "experts' own code at once; their weights become views into one tensor.",
            partial(experts.rewrite, request.tree, site),
        )
    is_compiled = any(each.step == "compile_model" and each.stacked for each in request.attempts)
    for site in projections.find(request.observation):
        if is_compiled:
            drafts.reasons.append("in compiled code layers are called one by one, so that it sees their weights move")
            continue
        drafts.add(
            site,
            "projections",
            f"Run {listed(site.detail['names'])} of {drafts.subject(site)} as one matrix multiplication",
            rationale(site),
            partial(projections.rewrite, request.tree, [site]),
            variant=",".join(site.detail["names"]),
            gain=gain_without(site.share, 0.3),
            at_stake=(1 - 1 / len(site.detail["names"])) * (site.share or 0.0),  # what one of them does not take
        )
    return drafts.answer("no two linear layers were given the same tensor, and there is no loop over experts")


def key(site: Site) -> Key:
    return key_of("projections", site, ",".join(site.detail["names"]))


def rationale(site: Site) -> str:
    layers = site.detail["layers"]
    sizes = " + ".join(str(layer["out_features"]) for layer in layers)
    found, times = listed(site.detail["names"]), site.detail["count"]
    return (
        f"{found} of {places(site)}, {times} times in the model, were given the same tensor "
        f"({layers[0]['in_features']} to {sizes}, {percent(site.share)}). Their weights become views into one tensor, "
        "so names, checkpoints and memory stay as they are."
    )
