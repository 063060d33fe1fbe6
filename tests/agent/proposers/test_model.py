"""Several conversations on one step: side by side, each told its own verdict, none asked before it has one."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from agent.llm import ModelError
from agent.proposers import PastAttempt, ProposalRequest
from agent.proposers.model import Model
from tools.candidate import Candidate


def candidate(name: str) -> Candidate:
    return Candidate(step="s", title=name, rationale=name, diff=f"diff --git a/{name} b/{name}\n")


class Talk:
    """Hands in one candidate after the other, and ends."""

    def __init__(self, *names: str, meet: threading.Barrier | None = None) -> None:
        self.left, self.meet, self.ended = list(names), meet, ""
        self.heard: list[list[str]] = []

    def next_candidate(self, attempts: Sequence[PastAttempt]) -> Candidate | None:
        self.heard.append([attempt.title for attempt in attempts])
        if self.meet is not None:
            self.meet.wait(10)  # nobody comes through alone
        if self.left:
            return candidate(self.left.pop(0))
        self.ended = "nothing is left"
        return None


def request(*judged: str) -> Any:
    attempts = [SimpleNamespace(title=name, diff_digest=candidate(name).digest) for name in judged]
    return SimpleNamespace(step="s", attempts=attempts, looking=False)


def titles(model: Model, asked: ProposalRequest) -> list[str]:
    return [found.title for found in model.propose(asked)[0]]


def test_drafts_work_side_by_side_and_each_waits_for_its_verdict() -> None:
    talks = {number: Talk(f"first of {number}", meet=threading.Barrier(2)) for number in (1, 2)}
    talks[2].meet = talks[1].meet
    model = Model(lambda step, number: talks[number], drafts=2)
    assert titles(model, request()) == ["first of 1", "first of 2"]
    assert titles(model, request("first of 1")) == ["first of 2"], "the other is still to be judged"
    assert len(talks[1].heard) == 1
    assert model.propose(request("first of 1", "first of 2")) == ([], "nothing is left")
    assert talks[1].heard[-1] == ["first of 1", "first of 2"]
    assert not model.expects(request())


def test_the_same_from_two_is_judged_once() -> None:
    model = Model(lambda step, number: Talk("the same"), drafts=2)
    assert titles(model, request()) == ["the same"]


def test_what_cannot_be_asked_ends_the_models_part() -> None:
    class Broken(Talk):
        def next_candidate(self, attempts: Sequence[PastAttempt]) -> Candidate | None:
            raise ModelError("it does not answer")

    model = Model(lambda step, number: Broken())
    assert model.propose(request()) == ([], "it does not answer") == model.propose(request())
    assert not model.expects(request())
