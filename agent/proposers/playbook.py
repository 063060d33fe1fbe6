"""The playbook: candidates without any model, key or network, from rewrites driven by what was observed.

It proposes and never judges. A step it has nothing for says why in one line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from agent.playbook import attention, audit, compiling, composing, gemm, graphs, kernels, projections
from agent.playbook.drafts import Answer
from agent.proposers import ProposalRequest, Proposer
from tools.candidate import Candidate, Site
from tools.rewrite import attention as attention_sites
from tools.rewrite import (
    copies,
    decisions,
    experts,
    fused_kernels,
    hoist,
    loops,
    padding,
    remember,
    repeat_kv,
    route_attention,
    zeros,
)
from tools.rewrite import kernels as kernel_sites
from tools.rewrite import projections as projection_sites

_STEPS: dict[str, Callable[[ProposalRequest], Answer]] = {
    "audit_compute": audit.propose,
    "write_kernels": kernels.propose,
    "fuse_projections": projections.propose,
    "swap_attention": attention.propose,
    "compile_model": compiling.propose,
    "route_gemm": gemm.propose,
    "capture_graph": graphs.propose,
}


class Playbook(Proposer):
    """A `Proposer`."""

    name = "playbook"

    def propose(self, request: ProposalRequest) -> tuple[list[Candidate], str]:
        if request.step == "compose_stack":
            found, reason = composing.propose(request, list(_STEPS.values()))
        elif request.step in _STEPS:
            found, reason = _STEPS[request.step](request)
        else:
            return [], "this step looks and proposes nothing"
        new = [candidate for candidate in found if candidate.digest not in request.judged_here]
        return new, reason if new or not found else "everything that was found has been tried"

    def expects(self, request: ProposalRequest) -> float:
        found, _ = self.propose(replace(request, tune=None))  # a tuner takes a while
        return (found[0].predicted_gain or 1.0) if found else 0.0

    def sites(self, request: ProposalRequest) -> list[Site]:
        """Everything known to be worth changing, the largest share of a call first."""
        finders = (
            padding,
            decisions,
            remember,
            loops,
            repeat_kv,
            copies,
            zeros,
            kernel_sites,
            fused_kernels,
            projection_sites,
            attention_sites,
            route_attention,
        )
        found = [site for finder in finders for site in finder.find(request.observation)]
        found += hoist.sites(request.tree, request.observation)
        found += experts.find(request.tree, request.observation)
        return sorted(found, key=lambda site: -(site.share or 0.0))

    def advice(self, request: ProposalRequest) -> list[str]:
        return compiling.advice(request)
