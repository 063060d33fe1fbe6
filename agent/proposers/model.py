"""Candidates of a model, which works with the tools of the run in one conversation for each step.

What it claims counts for nothing. It is asked only when it is its turn, never to look what it might say.
"""

from __future__ import annotations

from collections.abc import Callable

from agent.llm import KeyRefused, ModelError, ModelUnknown
from agent.llm.conversation import Conversation
from agent.proposers import ProposalRequest, Proposer
from tools.candidate import Candidate


class Model(Proposer):
    """A `Proposer`. `begin` starts the conversation of a step."""

    name = "llm"

    def __init__(self, begin: Callable[[str], Conversation]) -> None:
        self._begin = begin
        self._talks: dict[str, Conversation] = {}
        self._lost: dict[str, str] = {}  # step -> why its conversation ended with an error; "" where it did not
        self._failed = ""

    def propose(self, request: ProposalRequest) -> tuple[list[Candidate], str]:
        if request.looking:
            return [], "a model is asked when it is its turn"
        step = request.step
        if why := self._gone(step):
            return [], why
        self._lost.setdefault(step, "")
        try:
            if step not in self._talks:
                self._talks[step] = self._begin(step)
            talk = self._talks[step]
            found = None if talk.ended else talk.next_candidate(request.attempts)
        except ModelError as error:  # the run goes on without it
            # not asked again in this step; in no other after two in a row failed, or for what will not change
            self._lost[step] = error.message
            steps = list(self._lost)
            before = steps[: steps.index(step)][-1:]
            if isinstance(error, KeyRefused | ModelUnknown) or any(self._lost[each] for each in before):
                self._failed = error.message
            return [], error.message
        return ([found], "") if found is not None else ([], talk.ended)

    def _gone(self, step: str) -> str:
        return self._failed or self._lost.get(step, "")

    def expects(self, request: ProposalRequest) -> float:
        talk = self._talks.get(request.step)
        return float(not self._gone(request.step) and (talk is None or not talk.ended))
