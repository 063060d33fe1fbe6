"""A model is asked in one conversation for each step, and what fails ends its part and not the run."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from agent.llm import KeyRefused, ModelError
from agent.proposers import PastAttempt
from agent.proposers.model import Model
from tools.candidate import Candidate


class Talk:
    """Hands in one candidate after the other, and ends; or fails."""

    def __init__(self, *handed_in: str | Exception) -> None:
        self.left, self.ended = list(handed_in), ""
        self.heard: list[Sequence[PastAttempt]] = []

    def next_candidate(self, attempts: Sequence[PastAttempt]) -> Candidate | None:
        self.heard.append(attempts)
        if not self.left:
            self.ended = "nothing is left"
            return None
        found = self.left.pop(0)
        if isinstance(found, Exception):
            raise found
        return Candidate(step="s", title=found, rationale=found, diff=f"diff --git a/{found} b/{found}\n")


BROKEN = ModelError("it does not answer")


def request(*judged: str, step: str = "s", looking: bool = False) -> Any:
    return SimpleNamespace(step=step, attempts=judged, looking=looking)


def model_of(**talks: Any) -> Model:
    return Model(lambda step: talks[step])


def titles(model: Model, asked: Any) -> list[str]:
    return [found.title for found in model.propose(asked)[0]]


def test_a_conversation_hands_in_one_candidate_at_a_time_until_it_ends() -> None:
    talk = Talk("first", "second")
    model = model_of(s=talk)
    assert model.propose(request(looking=True))[0] == [] and not talk.heard
    assert model.expects(request()) and titles(model, request()) == ["first"]
    assert titles(model, request("first")) == ["second"] and talk.heard == [(), ("first",)]
    assert model.propose(request()) == ([], "nothing is left") == model.propose(request())
    assert not model.expects(request()) and len(talk.heard) == 3


def test_one_step_that_fails_is_not_the_last_but_two_in_a_row_or_a_refused_key_are() -> None:
    model = model_of(s=Talk(BROKEN), t=Talk("of t"), u=Talk(BROKEN), v=Talk(BROKEN), w=Talk("of w"))
    assert model.propose(request()) == ([], "it does not answer") == model.propose(request())
    assert not model.expects(request())
    found = {step: model.propose(request(step=step)) for step in "tuvw"}
    assert [each.title for each in found["t"][0]] == ["of t"]
    assert found["w"] == ([], "it does not answer") and not model.expects(request(step="w"))
    model = model_of(s=Talk(KeyRefused("the key is refused")), t=Talk("of t"))
    assert model.propose(request())[1] == model.propose(request(step="t"))[1] == "the key is refused"


def test_a_fault_of_ours_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        model_of(s=Talk(ZeroDivisionError())).propose(request())
