"""Candidates of an agent outside of the run, which uses its tools from one submission to the next.

Whatever is submitted is judged like anything else. What tools say is marked as data, as it is for a model.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace

from pydantic import Field

from agent.guard import Stopped
from agent.llm.conversation import HANDING_IN, GiveUp, Submit
from agent.outside.desk import Desk, HungUp, PendingCall
from agent.proposers import ProposalRequest, Proposer
from agent.workbench import REGISTRY, Workbench
from tools.candidate import Candidate
from tools.registry import Answer, Request, Tool, ToolFault
from tools.registry.marks import as_data, marked

LOOK_S = 2.0  # between two looks at the time that is left
_ENDING = ("submit", "give_up", "finish")  # end a turn; answered once their outcome is known


class Where(Request):
    """Show where the run stands: the step, what it is for, the cases that are timed, the profile, what was tried."""


class Finish(Request):
    """End the run: what is on the stack is measured as a whole, and the report and the branch are written."""

    reason: str = Field(min_length=3, max_length=1000)
    """Why nothing more is to be tried."""


_OWN = (*HANDING_IN, Tool("finish", Finish), Tool("where", Where))
OFFERED = (*REGISTRY.tools.values(), *_OWN)


class OutsideAgent(Proposer):
    """A `Proposer`. `open_bench` gives the workbench of a step, `told` what there is to say about it, `over` why there
    is no time for more in it, if so.
    """

    name = "outside"

    def __init__(
        self,
        desk: Desk,
        open_bench: Callable[[str], Workbench],
        told: Callable[[str], str],
        over: Callable[[], str] = lambda: "",
    ) -> None:
        self.desk, self._open_bench, self._told, self._over = desk, open_bench, told, over
        self.finished = ""
        self._benches: dict[str, Workbench] = {}
        self._ended: dict[str, str] = {}  # step -> why
        self._unanswered: PendingCall | None = None  # ended the last turn
        self._submitted: Candidate | None = None  # by it
        does: dict[str, Callable[..., str]] = {
            "submit": self._submit,
            "give_up": self._give_up,
            "finish": self._finish,
            "where": lambda bench, request: self._told(bench.step),
        }
        self._registry = REGISTRY.with_more([replace(tool, function=does[tool.name]) for tool in _OWN])

    def propose(self, request: ProposalRequest) -> tuple[list[Candidate], str]:
        """Raises: Stopped when the outside agent is gone."""
        if request.looking:
            return [], "an outside agent is asked when it is its turn"
        step = request.step
        if step not in self._benches:
            self._benches[step] = self._open_bench(step)
        if why := self._why_ended(step):
            return [], why
        self._answer_last_turn(request)
        found = self._turn(self._benches[step])
        return ([found], "") if found is not None else ([], self._ended[step])

    def expects(self, request: ProposalRequest) -> float:
        return float(not self._why_ended(request.step))

    def _why_ended(self, step: str) -> str:
        return self.finished or self._ended.get(step, "")

    def _turn(self, bench: Workbench) -> Candidate | None:
        """Let it work until it submits something or ends the step, or its time is over."""
        self._submitted = None
        while bench.step not in self._ended:
            if why := self._over():
                self._ended[bench.step] = why
                break
            try:
                call = self.desk.next_call(LOOK_S)
            except HungUp:
                raise Stopped(signal.SIGHUP) from None
            if call is None:
                continue
            with call.reporting_faults():
                answer = self._answer_to(bench, call)
            if answer.worked and call.name in _ENDING:
                self._unanswered = call
                break
            call.answer.set_result(answer)
        return self._submitted

    def _answer_to(self, bench: Workbench, call: PendingCall) -> Answer:
        """Marked as data, but for `where`, which has its marks inside and is whole, so that none is cut off."""
        answer = self._registry.call(bench, call.name, call.arguments)
        if call.name == "where" and answer.worked:
            return replace(answer, text=answer.whole)
        return replace(answer, text=as_data(call.name if call.name in self._registry.tools else "unknown", answer.text))

    def _submit(self, bench: Workbench, request: Submit) -> str:
        self._submitted = bench.candidate(request.title, request.rationale, request.predicted_gain, request.enables)
        return "handed in"

    def _give_up(self, bench: Workbench, request: GiveUp) -> str:
        self._ended[bench.step] = f"the outside agent gave up: {request.reason}"
        return self._ended[bench.step]

    def _finish(self, bench: Workbench, request: Finish) -> str:
        self.finished = self._ended[bench.step] = f"the outside agent has finished: {request.reason}"
        return self.finished

    def _answer_last_turn(self, request: ProposalRequest) -> None:
        if self._unanswered is None:
            return
        said = ""
        if (handed_in := self._submitted) is not None:
            judged = [past for past in request.attempts if past.diff_digest == handed_in.digest]
            said = judged[-1].told() if judged else "Your candidate was not judged."
        said += f"\nThe step is `{request.step}`; `where` tells more."
        try:
            if self._benches[request.step].renew():
                said += " Your files are those of the new top of the stack."
        except ToolFault as fault:
            said += f"\n{marked('data', str(fault))}"
        self._unanswered.answer.set_result(Answer(said.strip()))
        self._unanswered = None
