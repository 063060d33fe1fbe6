"""Candidates of a model, which works with the tools of the run in conversations of its own for each step.

What it claims counts for nothing. It is asked only when it is its turn, never to look what it might say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
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
    """A `Proposer`. `begin` starts a conversation of a step, by its number from 1; `drafts` work side by side."""

    name = "llm"

    def __init__(self, begin: Callable[[str, int], Talk], drafts: int = 1) -> None:
        self._begin, self._drafts = begin, drafts
        self._talks: dict[str, list[Talk]] = {}
        self._waiting: dict[str, list[Candidate]] = {}
        self._failed = ""

    def propose(self, request: ProposalRequest) -> tuple[list[Candidate], str]:
        if request.looking:
            return [], "a model is asked when it is its turn"
        if self._failed:
            return [], self._failed
        judged = {attempt.diff_digest for attempt in request.attempts}
        waiting = [each for each in self._waiting.get(request.step, ()) if each.digest not in judged]
        try:
            waiting = waiting or self._ask(request)
        except ModelError as error:  # the run goes on without it
            self._failed = error.message
            return [], self._failed
        self._waiting[request.step] = waiting
        return (waiting, "") if waiting else ([], self._reason(request.step))

    def _ask(self, request: ProposalRequest) -> list[Candidate]:
        """The next candidate of each conversation; none of the same twice."""
        if request.step not in self._talks:
            self._talks[request.step] = [self._begin(request.step, number + 1) for number in range(self._drafts)]
        talks = [talk for talk in self._talks[request.step] if not talk.ended]
        with ThreadPoolExecutor(max(1, len(talks))) as pool:
            found = list(pool.map(lambda talk: talk.next_candidate(request.attempts), talks))
        return [*{each.digest: each for each in found if each is not None}.values()]

    def _reason(self, step: str) -> str:
        return "; ".join(dict.fromkeys(talk.ended for talk in self._talks.get(step, ()) if talk.ended))

    def expects(self, request: ProposalRequest) -> bool:
        talks = self._talks.get(request.step)
        return not self._failed and (talks is None or any(not talk.ended for talk in talks))

    def sites(self, request: ProposalRequest) -> list[Site]:
        return []

    def advice(self, request: ProposalRequest) -> list[str]:
        return []
