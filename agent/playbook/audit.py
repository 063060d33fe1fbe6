"""Audit: what every call computes again, heads copied for attention, copies that change nothing."""

from __future__ import annotations

from functools import partial

from agent.playbook import graphs
from agent.playbook.drafts import Answer, Drafts, gain_without, key_of, listed, percent, places
from agent.proposers import ProposalRequest
from tools.candidate import Site
from tools.rewrite import CannotRewrite, copies, decisions, hoist, loops, padding, remember, repeat_kv, zeros

STEP = "audit_compute"
# one of several may have spoilt the others; what was refused, or gained nothing, is no better in pieces
_WORTH_SPLITTING = ("wrong", "broken", "slower")


def propose(request: ProposalRequest) -> Answer:
    drafts = Drafts(request, STEP)
    for site in loops.find(request.observation):
        drafts.add(
            site,
            "loops",
            f"Count the steps of `{drafts.code(site)}` of {site.file} once",
            f"{places(site)} asks the device in every step whether to go on, and waits for the answer "
            f"({site.detail['count']} times), although shapes and numbers decide it alone.",
            partial(loops.rewrite, request.tree, site),
            variant=drafts.code(site),
            enables="compile_model and capture_graph",
        )
    for site in decisions.find(request.observation):
        _decide_once(drafts, site)
    for site in padding.find(request.observation):
        drafts.add(
            site,
            "padding",
            f"Leave out padding before {drafts.subject(site)} computes anything",
            f"A mask of {site.module_class} excludes what lies behind the longest row; without it the result was the "
            f"same ({percent(site.share)} less). How long that is, is read from the mask of each call.",
            partial(padding.rewrite, request.tree, site),
            gain=gain_without(site.share),
        )
    for site in remember.find(request.observation):
        _remember(drafts, site)
    stays = request.entry if request.entry_is_protected else ""
    for site in hoist.sites(request.tree, request.observation, stays):
        _hoist(drafts, site)
    _copied(drafts)
    return drafts.answer("no copied heads, no needless copies and nothing that each call computes again were seen")


def _copied(drafts: Drafts) -> None:
    """What only writes memory once more."""
    request = drafts.request
    for site in repeat_kv.find(request.observation):
        drafts.add(
            site,
            "repeat_kv",
            f"Multiply with the key and value heads of {drafts.subject(site)} without repeating them",
            f"Each call copies the key and value heads of {places(site)} once for every query head they serve "
            f"({percent(site.share)}). The products take the heads as they are when the query heads of a group are "
            "stacked along the rows.",
            partial(repeat_kv.rewrite, request.tree, site),
            gain=gain_without(site.share),
            at_stake=2 * (site.share or 0.0),  # the products read no more of what was copied than copying moved
        )
    for site in copies.find(request.observation):
        what = listed([f"{c['operation']}() on line {c['line']}" for c in site.detail["copies"]])
        drafts.add(
            site,
            "copies",
            f"Drop needless copies in {drafts.subject(site)}",
            f"{what} of {site.file} copied or converted to no effect in every call seen ({percent(site.share)}).",
            partial(copies.rewrite, request.tree, site),
            gain=gain_without(site.share),
            at_stake=site.share or 0.0,
        )
    for site in zeros.find(request.observation):
        drafts.add(
            site,
            "zeros",
            f"Make memory without zeros in it in `{drafts.code(site)}` of {site.file}",
            f"{places(site)} makes zeros, all of which are written to before anything reads them "
            f"({percent(site.share)}).",
            partial(zeros.rewrite, request.tree, site),
            variant=drafts.code(site),
            gain=gain_without(site.share),
            at_stake=site.share or 0.0,
        )


def _decide_once(drafts: Drafts, site: Site) -> None:
    tree, where = drafts.request.tree, drafts.subject(site)
    try:
        outputs = decisions.outputs(tree, site)
    except CannotRewrite as reason:
        drafts.reasons.append(f"what Python waits for below line {site.line} of {site.file}: {reason}")
        return
    names = listed(outputs)
    drafts.add(
        site,
        "decisions",
        f"Decide {names} of {where} once for each shape",
        f"Below line {site.line} of {site.file} Python waits for the device to decide what depends on no data "
        f"({percent(site.share)}). {names} are found out once for each shape and the settings of then, and kept.",
        partial(decisions.rewrite, tree, site),
        variant=",".join(outputs),
        gain=gain_without(site.share),
        enables=graphs.enabled(drafts.request, STEP),
    )


def _remember(drafts: Drafts, site: Site) -> None:
    attributes = [call["attribute"] for call in site.detail["calls"]]
    names = listed(attributes)
    again = "whose result depends on constants and weights alone" if site.detail["constant"] else "on what it was given"
    drafts.add(
        site,
        "remember",
        f"Remember what {names} of {drafts.subject(site)} gave",
        f"{places(site)} calls {names} again, {again} before ({percent(site.share)}). Its result is kept under "
        "everything it depends on: the values of its input, weights, buffers and settings.",
        partial(remember.rewrite, drafts.request.tree, site),
        variant=",".join(attributes),
        gain=gain_without(site.share),
    )


def _hoist(drafts: Drafts, site: Site) -> None:
    """All constants of a function together; one by one when together they were not kept."""
    tree, where = drafts.request.tree, drafts.subject(site)
    found = hoist.groups(tree, site)
    names = [group.title for group in found]
    rationale = (
        f"{places(site)} builds {listed(names)} on every call from shapes, dtypes and numbers alone "
        f"({percent(site.share)}). They are built once for each such key and kept."
    )
    together, enables = ",".join(names), ""
    if any(group.is_on(site.detail["sent"]) for group in found):
        rationale += " Sent to the device in each call, they keep it from being recorded."
        enables = graphs.enabled(drafts.request, STEP)
    drafts.add(
        site,
        "hoist",
        f"Build {listed(names)} of {where} once",
        rationale,
        partial(hoist.rewrite, tree, site),
        variant=together,
        gain=gain_without(site.share),
        enables=enables,
        at_stake=1.0 if enables else site.share or 0.0,
    )
    if len(names) > 1 and drafts.was_tried(key_of("hoist", site, together), *_WORTH_SPLITTING):
        for name in dict.fromkeys(names):
            single = site.model_copy(update={"detail": {**site.detail, "only": name}})
            drafts.add(
                single,
                "hoist",
                f"Build {name} of {where} once",
                rationale,
                partial(hoist.rewrite, tree, single),
                variant=name,
                enables=enables,
            )
