"""Route GEMM: let the device's own tuner pick the library kernel for each shape."""

from __future__ import annotations

from functools import partial

from agent.playbook.drafts import Answer, Drafts
from agent.proposers import ProposalRequest
from tools.rewrite import compile_model, tunable_gemm


def propose(request: ProposalRequest) -> Answer:
    if not request.platform.rocm:
        return [], "TunableOp chooses between rocBLAS and hipBLASLt, which only ROCm has"
    drafts = Drafts(request, "route_gemm")
    for site in compile_model.find(request.observation):
        drafts.add(
            site,
            "Choose the GEMM kernel of each shape by measuring (TunableOp)",
            "rocBLAS and hipBLASLt hold many kernels for each shape, and their heuristics do not always pick the best. "
            "Each new shape is measured once, for 30 ms at most, before it is used.",
            partial(tunable_gemm.rewrite, request.tree, site),
        )
    return drafts.answer("no class of the target's own is there to switch it on in")
