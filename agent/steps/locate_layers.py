"""Locate layers: the classes and source lines in which a call spends its time.

Library code is located in the copy that a change of it would make.
"""

from __future__ import annotations

from agent.context import RunContext
from agent.records.atomic_file import write_atomically
from agent.state import RunState, Update, ended
from agent.steps.summing_up import finish, start
from tools.judging.worker import WorkerFault
from tools.rewrite import overlay

STEP = "locate_layers"


def run(state: RunState, ctx: RunContext) -> Update:
    if not start(ctx, STEP):
        return finish(ctx, ended(STEP, "skipped", "left out by --steps"))
    try:
        sites = ctx.proposals.sites()
    except WorkerFault as fault:
        return finish(ctx, ended(STEP, "nothing", f"the top of the stack could not be observed: {fault}"))
    write_atomically(
        ctx.run_dir / "profiles" / "sites.json", "[" + ",\n".join(site.model_dump_json() for site in sites) + "]\n"
    )
    own = [site for site in sites if not site.third_party]
    copied = sum(bool(overlay.root_of(site.file)) for site in own)
    if not sites:
        return finish(ctx, ended(STEP, "nothing", "no known pattern was found in what was run"))
    foreign = len(sites) - len(own)
    places = ", ".join(f"{site.kind} at {site.file}:{site.line}" for site in own[:4])
    where = (
        f"{len(own) - copied} in the target's own source, {copied} in libraries"
        if copied
        else (f"{len(own)} in the target's own source")
    )
    reason = where + (f": {places}" if own else "")
    reason += f"; {foreign} in library code that cannot be copied" if foreign else ""
    return finish(ctx, ended(STEP, "done", reason))
