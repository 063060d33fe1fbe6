"""Compile: torch.compile on the outermost class of the target's own, with settings that are safe on the platform."""

from __future__ import annotations

from functools import partial

from agent.playbook.drafts import Answer, Drafts
from agent.proposers import Platform, ProposalRequest
from tools.rewrite import CannotRewrite, compile_model

# Containers for AMD devices turn these on by themselves; autotuning of GEMMs has hung there.
_ROCM_OPTIONS = (
    'options={"max_autotune": False, "max_autotune_gemm_backends": "ATEN", "coordinate_descent_tuning": False, '
    '"triton.cudagraphs": False}'
)


def settings(platform: Platform, cases: int) -> list[str]:
    """Argument lists for `compile`, the likeliest first: with several shapes, one graph for each may win."""
    base = _ROCM_OPTIONS if platform.rocm else ""
    if cases < 2:
        return [base]
    return [", ".join(part for part in ("dynamic=False", base) if part), base]


def propose(request: ProposalRequest) -> Answer:
    drafts = Drafts(request, "compile_model")
    if request.platform.device == "cpu" and not request.platform.cpp_compiler:
        return [], "torch.compile needs a C++ compiler on a CPU, and none was found"
    sites = compile_model.find(request.observation)
    for site in sites:
        try:
            present = None if drafts.out_of_reach(site) else compile_model.settings_in(request.tree, site)
        except CannotRewrite as reason:
            return [], str(reason)
        for text in settings(request.platform, len(request.cases)):
            if text == present:
                continue
            drafts.add(
                site,
                f"Compile {site.module_class} ({_in_words(text)})",
                f"{site.module_class} ({site.file}:{site.line}) is the outermost module that is the target's own. "
                "Compiled, its small operations are merged and no longer launched one by one from Python.",
                partial(compile_model.rewrite, request.tree, site, text),
            )
        if present is not None and not drafts.candidates:
            drafts.reasons.append(f"{site.module_class} is compiled already")
    return drafts.answer("" if sites else compile_model.advice(request.observation, ""))


def advice(request: ProposalRequest) -> list[str]:
    """What the user can write when no class of the target may be changed."""
    drafts = Drafts(request, "compile_model")
    sites = compile_model.find(request.observation)
    if any(not drafts.out_of_reach(site) for site in sites):
        return []
    return [compile_model.advice(request.observation, _ROCM_OPTIONS if request.platform.rocm else "")]


def _in_words(text: str) -> str:
    words = ["one graph for each shape"] if "dynamic=False" in text else ["default settings"]
    return ", ".join([*words, *(["tuning off"] if "options" in text else [])])
