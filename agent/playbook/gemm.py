"""Route GEMM: let the device's own tuner pick the kernel of each shape, or another of its libraries do all of them."""

from __future__ import annotations

from functools import partial

from agent.playbook.drafts import Answer, Drafts
from agent.proposers import ProposalRequest
from tools.rewrite import compile_model, route_gemm

# by whether it is ROCm: (what torch calls a library, its name); what torch takes by itself may be among them
_LIBRARIES = {True: (("cublaslt", "hipBLASLt"), ("ck", "Composable Kernel")), False: (("cublaslt", "cuBLASLt"),)}


def propose(request: ProposalRequest) -> Answer:
    if request.platform.device != "cuda":
        return [], "a CPU has one library for matrix products"
    drafts = Drafts(request, "route_gemm")
    for site in compile_model.find(request.observation):
        if request.platform.rocm:
            drafts.add(
                site,
                "Choose the GEMM kernel of each shape by measuring (TunableOp)",
                "rocBLAS and hipBLASLt hold many kernels for each shape, and their heuristics do not always pick the "
                "best. Each new shape is measured once, for 30 ms at most, before it is used.",
                partial(route_gemm.tune, request.tree, site),
            )
        for library, name in _LIBRARIES[request.platform.rocm]:
            drafts.add(
                site,
                f"Prefer {name} for matrix products",
                f"PyTorch has more than one library for matrix products, and {name} may have better kernels for these "
                "shapes. The choice is for the whole process.",
                partial(route_gemm.prefer, request.tree, site, library),
            )
    return drafts.answer("no class of the target's own is there to say it in")
