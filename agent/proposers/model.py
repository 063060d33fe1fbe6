"""Candidates of a model, which works with the tools of the run in a conversation of its own for each step.

What it claims counts for nothing. It is asked only when it is its turn, never to look what it might say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from agent.llm import ModelError
from agent.proposers import PastAttempt, ProposalRequest
from tools.candidate import Candidate, Site


class Talk(Protocol):
    """A step's conversation."""

    @property
    def ended(self) -> str: ...

    def next_candidate(self, attempts: Sequence[PastAttempt]) -> Candidate | None: ...


class Model:
    """A `Proposer`. `begin` starts the conversation of a step."""

    name = "llm"

    def __init__(self, begin: Callable[[str], Talk]) -> None:
        self._begin = begin
        self._talks: dict[str, Talk] = {}
        self._failed = ""

    def propose(self, request: ProposalRequest) -> tuple[list[Candidate], str]:
        if request.looking:
            return [], "a model is asked when it is its turn"
        if self._failed:
            return [], self._failed
        try:
            if request.step not in self._talks:
                self._talks[request.step] = self._begin(request.step)
            talk = self._talks[request.step]
            found = None if talk.ended else talk.next_candidate(request.attempts)
        except ModelError as error:  # the run goes on without it
            self._failed = error.message
            return [], self._failed
        return ([found], "") if found is not None else ([], talk.ended)

    def expects(self, request: ProposalRequest) -> bool:
        talk = self._talks.get(request.step)
        return not self._failed and (talk is None or not talk.ended)

    def sites(self, request: ProposalRequest) -> list[Site]:
        return []

    def advice(self, request: ProposalRequest) -> list[str]:
        return []
