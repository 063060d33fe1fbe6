"""Candidates of a model, which works with the tools of the run in conversations of its own for each step.

What it claims counts for nothing. It is asked only when it is its turn, never to look what it might say.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Protocol

from agent.llm import KeyRefused, ModelError, ModelUnknown
from agent.proposers import PastAttempt, ProposalRequest
from tools.candidate import Candidate, Site

Heard = Future[Candidate | None]
_LOOK_S = 0.2  # how often the thread of the run looks whether it was told to stop


class Talk(Protocol):
    """A step's conversation. `next_candidate` is told of every attempt of the run until now."""

    @property
    def ended(self) -> str: ...

    def next_candidate(self, attempts: Sequence[PastAttempt]) -> Candidate | None: ...


class Model:
    """A `Proposer`. `begin` starts the conversations of a step, which end when its event is set."""

    name = "llm"

    def __init__(self, begin: Callable[[str, threading.Event], Sequence[Talk]]) -> None:
        self._begin = begin
        self._talks: dict[str, Sequence[Talk]] = {}
        self._waiting: list[Candidate] = []  # for their turn, on the stack that they were made on
        self._made_on: Path | None = None
        self._stopped = threading.Event()
        self._asked: list[str] = []  # steps, in their order
        self._lost: dict[str, str] = {}  # step -> why its conversations ended with an error
        self._failed = ""

    def propose(self, request: ProposalRequest) -> tuple[list[Candidate], str]:
        if request.looking:
            return [], "a model is asked when it is its turn"
        self._waiting = self._still_waiting(request)
        if not self._waiting and not self._gone(request.step):
            self._waiting, self._made_on = self._ask(request), request.base
        return (self._waiting, "") if self._waiting else ([], self._gone(request.step) or self._reason(request.step))

    def _still_waiting(self, request: ProposalRequest) -> list[Candidate]:
        """Also of conversations beside one that failed."""
        judged = {attempt.diff_digest for attempt in request.attempts}
        mine = [each for each in self._waiting if each.step == request.step and request.base == self._made_on]
        return [each for each in mine if each.digest not in judged]

    def _ask(self, request: ProposalRequest) -> list[Candidate]:
        """The next candidate of each conversation; none of the same twice."""
        if request.step not in self._asked:
            self._asked.append(request.step)
        try:
            if request.step not in self._talks:
                self._talks[request.step] = self._begin(request.step, self._stopped)
        except ModelError as error:  # the run goes on without it
            self._fails(request.step, error)
            return []
        talks = [talk for talk in self._talks[request.step] if not talk.ended]
        found = list[Candidate]()
        for heard in self._side_by_side(talks, request.attempts):
            try:
                candidate = heard.result()
            except ModelError as error:
                self._fails(request.step, error)
            else:
                found += [candidate] if candidate is not None else []
        return [*{candidate.digest: candidate for candidate in found}.values()]

    def _fails(self, step: str, error: ModelError) -> None:
        """A model that fails is not asked again in this step; in no other after it failed in two, one after the other,
        or for what will not change.
        """
        self._lost[step] = error.message
        before = self._asked[: self._asked.index(step)][-1:]
        if isinstance(error, (KeyRefused, ModelUnknown)) or any(each in self._lost for each in before):
            self._failed = error.message

    def _gone(self, step: str) -> str:
        return self._failed or self._lost.get(step, "")

    def _side_by_side(self, talks: Sequence[Talk], attempts: Sequence[PastAttempt]) -> list[Heard]:
        """What each came to. Several work in threads, which do not keep the run from stopping."""
        heard = [Heard() for _ in talks]
        if len(talks) == 1:
            _work(talks[0], attempts, heard[0])
            return heard
        for talk, into in zip(talks, heard, strict=True):
            threading.Thread(target=_work, args=(talk, attempts, into), daemon=True).start()
        try:
            while wait(heard, _LOOK_S).not_done:
                pass
        except BaseException:
            self._stopped.set()
            raise
        return heard

    def _reason(self, step: str) -> str:
        return "; ".join(dict.fromkeys(talk.ended for talk in self._talks.get(step, ()) if talk.ended))

    def expects(self, request: ProposalRequest) -> bool:
        if self._gone(request.step):
            return bool(self._still_waiting(request))
        talks = self._talks.get(request.step)
        return talks is None or any(not talk.ended for talk in talks) or bool(self._still_waiting(request))

    def sites(self, request: ProposalRequest) -> list[Site]:
        return []

    def advice(self, request: ProposalRequest) -> list[str]:
        return []


def _work(talk: Talk, attempts: Sequence[PastAttempt], into: Heard) -> None:
    """One conversation up to its next candidate."""
    try:
        into.set_result(talk.next_candidate(attempts))
    except ModelError as error:
        into.set_exception(error)
    except BaseException as error:
        into.set_exception(error)
        raise
