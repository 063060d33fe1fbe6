"""`agent mcp`: start a run, or go on with one, that an outside agent drives over MCP."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field, ValidationError

from agent import run
from agent.config import RunConfig
from agent.context import RunContext
from agent.errors import AgentError, WrongUsage
from agent.llm.prompt import rules, task
from agent.outside.desk import ADDRESS_FILE, Desk, HungUp
from agent.proposers import InTurn, Proposer
from agent.proposers.outside import OFFERED, OutsideAgent
from agent.reporting.progress import Note, Progress
from agent.skill_packs import Packs
from agent.workbench import Workbench
from sandbox.errors import RatchetError
from tools.registry import Answer, Request, Tool, ToolFault
from tools.registry.marks import as_data, marked

if TYPE_CHECKING:
    from agent.outside.server import Serving

LAST_ANSWER_S = 900.0  # an agent may think for long before it asks for what came of the run
LONGEST_SUMMARY = 4000


@dataclass(frozen=True)
class DrivenRun:
    """A run for an outside agent to drive: `begin` starts or resumes it, and returns its exit status."""

    config: RunConfig
    begin: Callable[[Progress, run.Joins], int]


class Begin(Request):
    """Begin the run: measure the repository as it is, and what one line of torch.compile gives. Takes minutes."""

    target: str = Field(min_length=1)
    """Folder of the repository; it is never changed."""
    entry: str = Field(min_length=1)
    """Script in it that shows how it is used, relative to the folder."""
    budget_minutes: float | None = Field(default=None, gt=0)
    """Time to look for changes; without it, as long as you like."""


def serve(
    progress: Progress,
    port: int | None,
    first: DrivenRun | None,
    ordered: Callable[[Begin], DrivenRun],
    packs: Sequence[Path] = (),
) -> int:
    """`first` is the run, or None where the outside agent says which, for `ordered`. Returns its exit status: 0 where
    the agent went away before one began. `packs` are told of while no run says which. Raises: RatchetError.
    """
    try:
        from agent.outside.server import Serving, made
    except ModuleNotFoundError as error:
        raise AgentError(
            f"Serving MCP needs the package {error.name}, which is not installed.",
            hint="Install `ratchet-agent[mcp]` beside Ratchet.",
        ) from error
    if first is None and port is not None:
        raise WrongUsage("--port needs --target and --entry.", hint="On stdio the outside agent can say which.")
    desk = Desk(progress)
    tools = OFFERED if first is not None else (Tool("begin", Begin), *OFFERED)
    told = rules(Packs.of(packs if first is None else first.config.skills))
    serving = Serving(desk, made(desk, tools, told))
    if port is None:
        serving.on_stdio()
    driven = first or _told(desk, ordered)
    return 0 if driven is None else _driven(driven, desk, serving, port)


def _told(desk: Desk, ordered: Callable[[Begin], DrivenRun]) -> DrivenRun | None:
    """Which run it is to be; None when the outside agent has gone away."""
    while True:
        try:
            call = desk.next_call()
        except HungUp:
            return None
        assert call is not None, "it was waited for"
        try:
            if call.name != "begin":
                raise ToolFault("No run has begun yet: `begin` says of what.")
            found = ordered(Begin.model_validate(dict(call.arguments)))
        except ToolFault as fault:
            said = str(fault)
        except ValidationError as error:
            said = f"That is no request: {error.errors()[0]['msg']}"
        except RatchetError as error:
            said = as_data("begin", f"{error.message}\n{error.hint or ''}".strip())
        else:
            call.answer.set_result(Answer("It begins. `where` says how it stands; `wait` waits for the answer."))
            return found
        call.answer.set_result(Answer(said, worked=False))


def _driven(driven: DrivenRun, desk: Desk, serving: Serving, port: int | None) -> int:
    """Raises: WrongUsage when the port cannot be had, and what the run raises."""
    run_dir = driven.config.run_dir
    listening = None if port is None else serving.listen(port)

    def join(ctx: RunContext, proposer: Proposer) -> Proposer:
        if listening is not None:
            address = serving.on_http(listening, run_dir)
            desk.emit(Note(f"serving MCP on {address}; the token is in {run_dir / ADDRESS_FILE}"))

        agent = OutsideAgent(desk, lambda step: Workbench.open(ctx, step, step), partial(task, ctx), ctx.budget.used_up)
        return InTurn([proposer, agent], over=lambda: agent.finished)

    said, patience_s = "It was stopped; `agent resume` goes on.", 0.0
    try:
        status = driven.begin(desk, join)
        said, patience_s = summary(run_dir), LAST_ANSWER_S
    finally:
        desk.end(said)
        serving.stop(patience_s)
        if listening is not None:
            listening.close()
    return status


def summary(run_dir: Path) -> str:
    """What came of the run, for the agent that drove it."""
    kept = len(json.loads((run_dir / "report.json").read_text(encoding="utf-8"))["kept"])
    report = run_dir / "report.md"
    begins = report.read_text(encoding="utf-8")[:LONGEST_SUMMARY]
    return f"The run is over; {kept} changes kept. The report ({report}) begins:\n\n{marked('data', begins)}"
