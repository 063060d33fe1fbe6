"""Capture graph: the whole call recorded once for each shape and replayed."""

from __future__ import annotations

from functools import partial

from agent.playbook.drafts import Answer, Drafts
from agent.proposers import ProposalRequest
from tools.rewrite import model_class


def obstacle(request: ProposalRequest, compiled: bool = False) -> str:
    """Why no call can be recorded; empty where nothing is known against it.

    What eager code reads, to choose its way, is not read where torch.compile follows that code without a break.
    """
    if request.platform.device != "cuda":
        return "a CPU has no graphs to capture: its calls are not launched on a device"
    unbroken = compiled and request.compile_breaks == 0
    if (reads := request.observation.host_reads) and not unbroken:
        places = ", ".join(f"{f.file}:{f.line}" for read in reads[:3] for f in read.frames[:1])
        return f"Python reads values of tensors during the call ({places}), so a recording would not follow them"
    return ""


def propose(request: ProposalRequest) -> Answer:
    drafts = Drafts(request, "capture_graph")
    sites = model_class.find(request.observation)
    for site in sites:
        drafts.add(
            site,
            "capture",
            f"Capture whole calls of {site.module_class} as graphs",
            "Every kernel of a call is launched from Python, one by one. A recorded call is launched at once, so the "
            "device need not wait for the host.",
            partial(model_class.capture, request.tree, site),
        )
    if (why := obstacle(request)) and (drafts.candidates or request.platform.device != "cuda"):
        return [], why  # not of what is captured already, compiled
    return drafts.answer("" if sites else "the outermost module is third-party code, where nothing is captured for now")
