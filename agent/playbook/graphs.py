"""Capture graph: the whole call recorded once for each shape and replayed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from agent.playbook.drafts import Answer, Drafts
from agent.proposers import ProposalRequest
from tools.observation import HostRead
from tools.rewrite import model_class

STEP = "capture_graph"


def obstacle(request: ProposalRequest, compiled: bool = False) -> str:
    """Why no call can be recorded; empty where nothing is known against it.

    What eager code reads, to choose its way, is not read where torch.compile follows that code without a break.
    """
    if request.platform.device != "cuda":
        return "a CPU has no graphs to capture: its calls are not launched on a device"
    if compiled and request.compile_breaks == 0:
        return ""
    if reads := request.observation.host_reads:
        return f"Python reads values of tensors during the call {_places(reads)}, so a recording would not follow them"
    if sent := request.observation.host_copies:
        return f"values go from the host to the device during the call {_places(sent)}, which cannot be recorded"
    return ""


def _places(rows: Sequence[HostRead]) -> str:
    return f"({', '.join(f'{f.file}:{f.line}' for row in rows[:3] for f in row.frames[:1])})"


def enabled(request: ProposalRequest, step: str) -> str:
    """This step's name where a change of `step` may make it possible to record calls: nothing keeps them from it but
    what depends on no data, on a GPU, and no capture was tried.
    """
    rows = [*request.observation.host_reads, *request.observation.host_copies]
    to_come = STEP in request.steps and not any(a.step == STEP for a in request.attempts)
    serves = request.step == step and request.platform.device == "cuda" and all(row.fixed for row in rows)
    return STEP if serves and to_come else ""


def propose(request: ProposalRequest) -> Answer:
    drafts = Drafts(request, STEP)
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
