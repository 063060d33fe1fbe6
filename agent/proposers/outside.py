"""Candidates of an agent outside of the run, which uses its tools from one submission to the next.

Refuses nothing and believes nothing: what is submitted is judged like anything else. What tools say is marked as data,
as it is for a model.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from pydantic import Field

from agent.guard import Stopped
from agent.llm.conversation import HANDING_IN, GiveUp, Submit
from agent.outside.desk import Asked, Desk, HungUp, answering
from agent.proposers import ProposalRequest, Proposer
from agent.proposers.past import verdict_on
from agent.workbench import REGISTRY, Workbench
from tools.candidate import Candidate
from tools.registry import Answer, Registry, Request, Tool, ToolFault
from tools.registry.marks import as_data, marked

LOOK_S = 2.0  # how often it is looked whether there is time left


class Where(Request):
    """Show where the run stands: the step, what it is for, the cases that are timed, the profile, what was tried."""


class Finish(Request):
    """End the run: what is on the stack is measured as a whole, and the report and the branch are written."""

    reason: str = Field(min_length=3, max_length=1000)
    """Why nothing more is to be tried."""


_OWN = (*HANDING_IN, Tool("finish", Finish), Tool("where", Where))
OFFERED = (*REGISTRY.tools.values(), *_OWN)


@dataclass
class _Step:
    """What belongs to one step."""

    bench: Workbench
    ended: str = ""


@dataclass
class Outside(Proposer):
    """A `Proposer`. `open_bench` gives the workbench of a step, `told` what there is to say about it, `over` why there
    is no time for more in it, if so.
    """

    desk: Desk
    open_bench: Callable[[str], Workbench]
    told: Callable[[str], str]
    over: Callable[[], str] = lambda: ""
    name: str = "outside"
    finished: str = ""
    _steps: dict[str, _Step] = field(default_factory=dict)
    _waiting: Asked | None = None  # who submitted or ended something, and has no answer yet
    _handed_in: str = ""  # the digest of what was submitted last

    def propose(self, request: ProposalRequest) -> tuple[list[Candidate], str]:
        """Raises: Stopped when the outside agent is gone."""
        if request.looking:
            return [], "an outside agent is asked when it is its turn"
        step = self._steps.get(request.step) or _Step(self.open_bench(request.step))
        self._steps[request.step] = step
        if self.finished or step.ended:
            return [], self.finished or step.ended
        self._answer_waiting(request, step)
        found = self._serve(request.step, step)
        return ([found], "") if found is not None else ([], step.ended)

    def _serve(self, name: str, step: _Step) -> Candidate | None:
        """Let it work until it submits something or ends the step, or its time is over."""
        submitted = list[Candidate]()
        registry = self._registry(name, step, submitted)
        while not step.ended:
            step.ended = self.over()
            try:
                asked = None if step.ended else self.desk.next_asked(LOOK_S)
            except HungUp:
                raise Stopped(signal.SIGHUP) from None
            if asked is None:
                continue
            if asked.name not in ("submit", "give_up", "finish"):
                answering(asked, partial(_answered, registry, step.bench, asked))
                continue
            try:
                answer = _answered(registry, step.bench, asked)
            except BaseException:
                asked.answer.set_result(Answer("The run failed over this, which is not your fault.", worked=False))
                raise
            if not answer.worked:
                asked.answer.set_result(answer)
                continue
            self._waiting = asked  # answered when it is known what came of it
            self._handed_in = submitted[0].digest if submitted else ""
            return submitted[0] if submitted else None
        return None

    def _registry(self, name: str, step: _Step, submitted: list[Candidate]) -> Registry:
        def submit(bench: Workbench, request: Submit) -> str:
            found = bench.candidate(request.title, request.rationale, request.predicted_gain, request.enables)
            submitted.append(found)
            return "handed in"

        def give_up(bench: Workbench, request: GiveUp) -> str:
            step.ended = f"the outside agent gave up: {request.reason}"
            return step.ended

        def finish(bench: Workbench, request: Finish) -> str:
            self.finished = step.ended = f"the outside agent has finished: {request.reason}"
            return self.finished

        def where(bench: Workbench, request: Where) -> str:
            return self.told(name)

        does: dict[type[Request], Callable[..., str]] = {
            Submit: submit,
            GiveUp: give_up,
            Finish: finish,
            Where: where,
        }
        return Registry([*REGISTRY.tools.values(), *(replace(tool, function=does[tool.request]) for tool in _OWN)])

    def _answer_waiting(self, request: ProposalRequest, step: _Step) -> None:
        if self._waiting is None:
            return
        judged = [past for past in request.attempts if self._handed_in and past.diff_digest == self._handed_in]
        said = verdict_on(judged[-1]) if judged else "Your candidate was not judged." if self._handed_in else ""
        said += f"\nThe step is `{request.step}`; `where` tells more."
        try:
            if step.bench.renew():
                said += " Your files are those of the new top of the stack."
        except ToolFault as fault:
            said += f"\n{marked('data', str(fault))}"
        self._waiting.answer.set_result(Answer(said.strip()))
        self._waiting = None

    def answer_last(self, said: str) -> None:
        """To whoever still waits when the run is over."""
        if self._waiting is not None:
            self._waiting.answer.set_result(Answer(said))
            self._waiting = None

    def expects(self, request: ProposalRequest) -> bool:
        step = self._steps.get(request.step)
        return not self.finished and (step is None or not step.ended)


def _answered(registry: Registry, bench: Workbench, asked: Asked) -> Answer:
    """Marked as data; but for `where`, which has its marks inside, and is whole, so that none of them is cut off."""
    answer = registry.call(bench, asked.name, asked.arguments)
    if asked.name == "where" and answer.worked:
        return replace(answer, text=answer.whole)
    return replace(answer, text=as_data(asked.name if asked.name in registry.tools else "unknown", answer.text))
