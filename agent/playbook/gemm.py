"""Route GEMM: let the device's own tuner pick the kernel of each product, let convolutions be searched for, and apply
activations within products.
"""

from __future__ import annotations

from functools import partial

from agent.playbook.drafts import PUT_OFF, Answer, Drafts, gain_without, percent, places, put_off, short
from agent.proposers import ProposalRequest
from tools.candidate import Site
from tools.rewrite import compile_model, epilogues, route_gemm

STEP = "route_gemm"
CONVOLUTION_SHARE = 0.05  # of a call; less is not worth a candidate
# by whether it is ROCm: the library that searches for convolutions, and the one that applies activations in products
_SEARCH, _PRODUCTS = {True: "MIOpen", False: "cuDNN"}, {True: "hipBLASLt", False: "cuBLASLt"}


def propose(request: ProposalRequest) -> Answer:
    if request.platform.device == "cpu":
        return [], "a CPU has one library for matrix products and convolutions"
    drafts = Drafts(request, STEP)
    late = put_off(request, STEP)  # what a kernel less saves shows best where calls are recorded
    for site in compile_model.find(request.observation):
        if route_gemm.convolution_share(request.observation) > CONVOLUTION_SHARE:
            _convolutions(drafts, request, site)
        if request.platform.rocm and not late:
            _products(drafts, request, site)
    if late:
        return drafts.answer(PUT_OFF)
    _epilogues(drafts, request)
    return drafts.answer("nothing here has a choice of kernels that was not tried")


def _epilogues(drafts: Drafts, request: ProposalRequest) -> None:
    library = _PRODUCTS[request.platform.rocm]
    for site in epilogues.find(request.observation):
        layer = f"{site.detail['attribute']} of {site.module_class} ({short(site.file)})"
        drafts.add(
            site,
            "epilogues",
            f"Apply the activation after {layer} within its product",
            f"The activation reads and writes all that {places(site)} gives, {site.detail['count']} times in a call "
            f"({percent(site.share)}). {library} can apply it, and the bias, before it writes. Which is faster is "
            "measured once for each shape.",
            partial(epilogues.rewrite, request.tree, site),
            variant=site.detail["attribute"],
            gain=gain_without(site.share, 0.8),
            at_stake=0.8 * (site.share or 0.0),
        )


def _convolutions(drafts: Drafts, request: ProposalRequest, site: Site) -> None:
    library = _SEARCH[request.platform.rocm]
    drafts.add(
        site,
        "find_convolutions",
        f"Let {library} measure its kernels for each convolution",
        f"{library} has several kernels for each shape, and by itself takes one by a rule. Each new shape is "
        "measured instead, once.",
        partial(route_gemm.find_convolutions, request.tree, site),
        at_stake=route_gemm.convolution_share(request.observation),
    )


def _products(drafts: Drafts, request: ProposalRequest, site: Site) -> None:
    drafts.add(
        site,
        "tune_gemm",
        "Choose the GEMM kernel of each shape by measuring (TunableOp)",
        "rocBLAS and hipBLASLt hold many kernels for each shape, and their heuristics do not always pick the "
        "best. Each new shape is measured once, for 30 ms at most, before it is used.",
        partial(route_gemm.tune, request.tree, site),
    )
    drafts.add(
        site,
        "route_gemm",
        "Multiply each shape of the linear layers in the way that is measured to be the fastest",
        "Which way is the fastest differs from shape to shape: the library's own, with the bias added apart, or "
        "aiter's where it is installed, with weights as they are or shuffled. Each new shape is measured once.",
        partial(route_gemm.route, request.tree, site),
    )
    drafts.add(
        site,
        "pad_weights",
        "Keep the rows of the linear layers' weights apart",
        "Rows that lie a multiple of 512 bytes apart begin in the same channel of the memory, and are read one "
        "after the other. A gap of 256 bytes between them spreads them out.",
        partial(route_gemm.pad, request.tree, site),
    )
