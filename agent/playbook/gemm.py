"""Route GEMM: let the device's own tuner pick the kernel of each product, and let convolutions be searched for."""

from __future__ import annotations

from functools import partial

from agent.playbook.drafts import Answer, Drafts
from agent.proposers import ProposalRequest
from tools.rewrite import model_class, ops_package

STEP = "route_gemm"
CONVOLUTION_SHARE = 0.05  # of a call; less is not worth a candidate

_PRODUCTS = (
    (
        "tune_gemm",
        ops_package.TUNABLE_GEMM,
        "",
        "Choose the GEMM kernel of each shape by measuring (TunableOp)",
        "rocBLAS and hipBLASLt hold many kernels for each shape, and their heuristics do not always pick the "
        "best. Each new shape is measured once, for 30 ms at most, before it is used.",
    ),
    (
        "route_gemm",
        ops_package.ROUTED_LINEAR,
        "self",
        "Multiply each shape of the linear layers in the way that is measured to be the fastest",
        "Which way is the fastest differs from shape to shape: the library's own, with the bias added apart, or "
        "aiter's where it is installed. Each new shape is measured once.",
    ),
    (
        "pad_weights",
        ops_package.PADDED_LINEAR,
        "self",
        "Keep the rows of the linear layers' weights apart",
        "Rows that lie a multiple of 512 bytes apart begin in the same channel of the memory, and are read one "
        "after the other. A gap of 256 bytes between them spreads them out.",
    ),
)


def propose(request: ProposalRequest) -> Answer:
    if request.platform.device == "cpu":
        return [], "a CPU has one library for matrix products and convolutions"
    drafts = Drafts(request, STEP)
    for site in model_class.find(request.observation):
        if (share := model_class.convolution_share(request.observation)) > CONVOLUTION_SHARE:
            library = "MIOpen" if request.platform.rocm else "cuDNN"
            drafts.add(
                site,
                "find_convolutions",
                f"Let {library} measure its kernels for each convolution",
                f"{library} has several kernels for each shape, and by itself takes one by a rule. Each new shape is "
                "measured instead, once.",
                partial(model_class.call_in_init, request.tree, site, ops_package.CONV_FIND),
                at_stake=share,
            )
        for rewriter, asset, arguments, title, why in _PRODUCTS if request.platform.rocm else ():
            rewrite = partial(model_class.call_in_init, request.tree, site, asset, arguments)
            drafts.add(site, rewriter, title, why, rewrite)
    return drafts.answer("nothing here has a choice of kernels that was not tried")
