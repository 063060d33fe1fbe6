"""Several conversations on one step: side by side, each told its own verdict, none asked before it has one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from agent.llm import KeyRefused, ModelError
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


def request(*judged: str, base: str = "base", step: str = "s") -> Any:
    attempts = [SimpleNamespace(title=name, diff_digest=candidate(name).digest) for name in judged]
    return SimpleNamespace(step=step, attempts=attempts, looking=False, base=base)


def model_of(*talks: Talk) -> Model:
    return Model(lambda step, stopped: talks)


def titles(model: Model, asked: ProposalRequest) -> list[str]:
    return [found.title for found in model.propose(asked)[0]]


def test_drafts_work_side_by_side_and_each_waits_for_its_verdict() -> None:
    meet = threading.Barrier(2)
    talks = [Talk("first of 1", meet=meet), Talk("first of 2", meet=meet)]
    model = model_of(*talks)
    assert titles(model, request()) == ["first of 1", "first of 2"]
    assert titles(model, request("first of 1")) == ["first of 2"], "the other is still to be judged"
    assert len(talks[0].heard) == 1
    assert model.propose(request("first of 1", "first of 2")) == ([], "nothing is left")
    assert talks[0].heard[-1] == ["first of 1", "first of 2"]
    assert not model.expects(request())


def test_what_was_made_on_another_stack_goes_back_to_who_made_it() -> None:
    talks = [Talk("first of 1"), Talk("first of 2", "again")]
    model = model_of(*talks)
    assert titles(model, request()) == ["first of 1", "first of 2"]
    assert titles(model, request("first of 1", base="the first is on it")) == ["again"]


def test_the_same_from_two_is_judged_once() -> None:
    assert titles(model_of(Talk("the same"), Talk("the same")), request()) == ["the same"]


class Broken(Talk):
    def next_candidate(self, attempts: Sequence[PastAttempt]) -> Candidate | None:
        raise ModelError("it does not answer")


def test_what_cannot_be_asked_ends_the_models_part_and_loses_nothing() -> None:
    model = model_of(Broken())
    assert model.propose(request()) == ([], "it does not answer") == model.propose(request())
    assert not model.expects(request())
    model = model_of(Broken(), Talk("of the other"))
    assert titles(model, request()) == ["of the other"]
    model = model_of(Broken(), Talk("x"), Talk("y"))
    assert titles(model, request()) == ["x", "y"] and model.expects(request("x"))
    assert titles(model, request("x")) == ["y"], "it waits for its turn, whatever became of another conversation"
    assert model.propose(request("x", "y")) == ([], "it does not answer") and not model.expects(request("x", "y"))


def test_one_step_that_fails_is_not_the_last() -> None:
    talks = {"s": [Broken()], "t": [Talk("of t")], "u": [Broken()], "v": [Broken()], "w": [Talk("of w")]}
    model = Model(lambda step, stopped: talks[step])
    found = {step: model.propose(request(step=step)) for step in talks}
    assert [each.title for each in found["t"][0]] == ["of t"]
    assert found["w"] == ([], "it does not answer"), "two in a row"
    assert not model.expects(request(step="w"))


def test_a_key_that_is_refused_is_refused_in_each_step() -> None:
    class Refused(Talk):
        def next_candidate(self, attempts: Sequence[PastAttempt]) -> Candidate | None:
            raise KeyRefused("the key is refused")

    model = Model(lambda step, stopped: [Refused()] if step == "s" else [Talk("of t")])
    assert model.propose(request())[1] == model.propose(request(step="t"))[1] == "the key is refused"


@pytest.mark.parametrize("count", [1, 2])
def test_a_run_that_is_stopped_does_not_wait_for_its_model(count: int) -> None:
    stops = list[threading.Event]()

    class Slow(Talk):
        def next_candidate(self, attempts: Sequence[PastAttempt]) -> Candidate | None:
            assert stops[0].wait(20)
            self.ended = "the run is stopped"
            return None

    def begin(step: str, stopped: threading.Event) -> list[Talk]:
        stops.append(stopped)
        return [Slow() for _ in range(count)]

    def alarm(number: int, frame: object) -> None:
        if count == 1:
            stops[0].set()  # a single one works in the thread that the signal comes to
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, alarm)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt):
            Model(begin).propose(request())
    finally:
        signal.signal(signal.SIGALRM, before)
    assert stops[0].is_set()


def test_a_fault_of_ours_is_raised_in_the_runs_own_thread() -> None:
    class Faulty(Talk):
        def next_candidate(self, attempts: Sequence[PastAttempt]) -> Candidate | None:
            raise ModelFault

    class ModelFault(Exception):
        pass

    with pytest.raises(ModelFault):
        model_of(Faulty()).propose(request())
