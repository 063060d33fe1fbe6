"""Compile: torch.compile on the outermost class of the target's own, with settings that are safe on the platform."""

from __future__ import annotations

import re
from functools import partial

from agent.playbook import graphs
from agent.playbook.drafts import Answer, Drafts, key_of, percent
from agent.proposers import Platform, ProposalRequest
from tools.candidate import Site
from tools.rewrite import CannotRewrite, model_class

# Containers for AMD devices turn these on by themselves; autotuning of GEMMs has hung there.
_ROCM_OPTIONS = (
    'options={"max_autotune": False, "max_autotune_gemm_backends": "ATEN", "coordinate_descent_tuning": False, '
    '"triton.cudagraphs": False}'
)

MOST_AT_A_START_S = 60.0  # of compiling that each start of a program pays for
_MODE = re.compile(r'mode="([\w-]+)"')
_REGIONS = "compile_regions"


def settings(platform: Platform, cases: int, tuning_pays: bool = False) -> list[str]:
    """Argument lists for `compile`, the likeliest first: with several shapes, one graph for each may win.

    Tuning comes only where plain torch.compile showed that it pays: last on a GPU, where it takes minutes; first on a
    CPU, where it takes no longer than compiling does (evals/results/results.jsonl, 2026-11-27T22:44).
    """
    base = _ROCM_OPTIONS if platform.rocm else ""
    found = [base] if cases < 2 else [f"dynamic=False, {base}".removesuffix(", "), base]
    if not tuning_pays:
        return found
    on_gpu = platform.device == "cuda"
    mode = "max-autotune-no-cudagraphs" if on_gpu else "max-autotune"
    tuned = f'{"dynamic=False, " if cases > 1 else ""}mode="{mode}"'
    return [*found, tuned] if on_gpu else [tuned, *found]


def propose(request: ProposalRequest) -> Answer:
    drafts = Drafts(request, "compile_model")
    if request.platform.device == "cpu" and not request.platform.cpp_compiler:
        return [], "torch.compile needs a C++ compiler on a CPU, and none was found"
    sites = model_class.find(request.observation)
    ways = settings(request.platform, len(request.cases), request.tuning_pays)
    for site in sites:
        place = key_of("", site).place
        kept = any((a.step, a.verdict, a.key.place) == ("compile_model", "kept", place) for a in request.attempts)
        hopeless = "" if kept else _hopeless(request)
        try:
            present = None if drafts.out_of_reach(site) else model_class.settings_in(request.tree, site)
        except CannotRewrite as reason:
            drafts.reasons.append(str(reason))
            continue
        if hopeless:
            drafts.reasons.append(f"compiling {site.module_class} {hopeless}")
        if request.recording_pays and not (hopeless or present is not None or graphs.obstacle(request, compiled=True)):
            _recorded(drafts, site, ways[0])
        for text in () if hopeless else ways:
            if text == present or (kept and "mode=" not in text):
                continue  # of the ways without tuning, the likeliest was tried first
            drafts.add(
                site,
                "compile_model",
                f"Compile {site.module_class} ({_in_words(text)})",
                f"{site.module_class} ({site.file}:{site.line}) is an outermost module of the target's own. "
                "Compiled, its small operations are merged and no longer launched one by one from Python.",
                partial(model_class.compile_calls, request.tree, site, text),
                variant=_variant(text),
            )
        if present is not None and not drafts.candidates:
            drafts.reasons.append(f"{site.module_class} is compiled already")
        elif not drafts.candidates:
            _by_region(drafts, ways[0])
    return drafts.answer("" if sites else model_class.advice(request.observation, ""))


def _hopeless(request: ProposalRequest) -> str:
    """Why the whole is not compiled in another way; empty where it may be."""
    mended = (a for a in request.attempts if a.verdict == "kept" and a.key.rewriter != _REGIONS)
    if request.compile_endless and not any(mended):
        return "comes to no end, or begins again for each input"
    tried = [a for a in request.attempts if a.step == "compile_model" and a.verdict == "slower"]
    longest_s = max((a.first_call_s for a in tried), default=0.0)
    return f"took {longest_s:.0f} s, and lost" if longest_s > MOST_AT_A_START_S else ""


def _recorded(drafts: Drafts, site: Site, text: str) -> None:
    """What only saves launches and what only merges kernels: together, where plain torch.compile showed that both pay.

    Compiled calls that wait for Python scatter from one start to the next, so that each by itself is long in proving.
    """
    drafts.add(
        site,
        "compile_and_capture",
        f"Compile {site.module_class} ({_in_words(text)}) and record its calls as graphs",
        f"{site.module_class} ({site.file}:{site.line}) is an outermost module of the target's own. Compiled, "
        "its small operations are merged; recorded, all kernels of a call are launched at once.",
        partial(model_class.compile_and_capture, drafts.request.tree, site, text),
        variant=_variant(text),
    )


def _by_region(drafts: Drafts, text: str) -> None:
    """The block that is repeated most, compiled once for all of its copies, where the whole could not be or gained
    nothing: a part that torch.compile cannot read, or code that differs from call to call, need not spoil the rest.
    """
    for site in model_class.regions(drafts.request.observation)[:1]:
        drafts.add(
            site,
            _REGIONS,
            f"Compile each {site.module_class} by itself ({_in_words(text)})",
            f"{site.module_class} ({site.file}:{site.line}) is used {site.detail['count']} times and takes "
            f"{percent(site.share)}. Compiled by itself, it is compiled once for all of them.",
            partial(model_class.compile_calls, drafts.request.tree, site, text),
            variant=_variant(text),
        )


def advice(request: ProposalRequest) -> list[str]:
    """What the user can write when no class of the target may be changed."""
    drafts = Drafts(request, "compile_model")
    sites = model_class.find(request.observation)
    if any(not drafts.out_of_reach(site) for site in sites):
        return []
    return [model_class.advice(request.observation, _ROCM_OPTIONS if request.platform.rocm else "")]


def _variant(text: str) -> str:
    """Which settings, for the key: "dynamic", "static", "static max-autotune", …"""
    parts = ("untuned" if "options=" in text else "", *_MODE.findall(text))
    return " ".join(filter(None, ("static" if "dynamic=False" in text else "dynamic", *parts)))


def _in_words(text: str) -> str:
    words = ["one graph for each shape"] if "dynamic=False" in text else ["default settings"]
    tuned = {"options": "tuning off", "max-autotune": "products tuned"}
    return ", ".join([*words, *(said for part, said in tuned.items() if part in text)])
