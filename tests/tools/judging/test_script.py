"""The script of calls: what is in it, and that nothing is asked which the original does not answer."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.tools.judging.opened import linear, opened
from tools.judging.check import Checks
from tools.judging.script import SEEDS, Call, Case, Script, State, write_script


def test_calls_without_an_input_are_left_out_and_the_others_keep_theirs() -> None:
    case, unseen = Case("", {"rows": 8}), [Case("", {"rows": 9})]
    script = write_script([case], unseen, {"": ("negated", "constant")}, (), False, random.Random(0))
    seeds = [None if draw.variant == "negated" else 7 * index for index, draw in enumerate(script.draws)]
    left = script.only(seeds)
    labels = [(step.label, step.how) for step in script.steps if isinstance(step, Call)]
    asked = {step.label: left.draws[step.draw] for step in left.steps if isinstance(step, Call)}
    assert [(step.label, step.how) for step in left.steps if isinstance(step, Call)] == [
        each for each in labels if each[0] != "negated values"
    ]
    assert asked["constant values"].variant == "constant" and asked["unseen shape"].case == unseen[0]
    assert [draw.seed for draw in left.draws] == [seed for seed in seeds if seed is not None]


@pytest.mark.parametrize("transforms", [(), ("to_cpu", "deepcopy")])
def test_ten_seeds_are_left_when_nothing_is_answered_that_was_not_declared(transforms: tuple[str, ...]) -> None:
    case, unseen = Case("", {"rows": 8}), [Case("", {"rows": n}) for n in (1, 9, 17)]
    script = write_script([case], unseen, {"": ("negated",)}, transforms, True, random.Random(0))
    answered = [draw.seed if not draw.variant and draw.case == case else None for draw in script.draws]
    assert script.only(answered).seeds >= SEEDS


@pytest.mark.parametrize("states", [True, False])
def test_a_second_state_dict_is_loaded_whatever_else_a_model_survives(states: bool) -> None:
    script = write_script([Case("", {})], [], {}, (), states, random.Random(0))
    loaded = [step.which for step in script.steps if isinstance(step, State)]
    assert loaded == (["a", "b", "a"] if states else [])


def test_other_values_and_transforms_are_asked_of_every_phase() -> None:
    rows = (("decode", 1), ("prefill", 8), ("decode", 2))
    cases = [Case(phase, {"rows": count}) for phase, count in rows]
    variants = {"decode": ("negated", "scaled"), "prefill": ("constant",)}
    script = write_script(cases, [], variants, ("scale", "deepcopy"), True, random.Random(0))
    drawn = [(step.label, script.draws[step.draw]) for step in script.steps if isinstance(step, Call)]
    of_values = [(draw.variant, draw.case.phase, draw.case.shape["rows"]) for _, draw in drawn if draw.variant]
    assert of_values[:3] == [("negated", "decode", 1), ("scaled", "decode", 1), ("constant", "prefill", 8)]
    assert of_values[3][0] in variants["decode"] and of_values[3][1:] == ("decode", 2) and len(of_values) == 4
    after = [(label, draw.case.phase) for label, draw in drawn if label.startswith("after ")]
    assert after == [(f"after {name}", phase) for name in ("scale", "deepcopy") for phase in ("decode", "prefill")]


# answers to values this large with some seeds only
SOME = "x.abs().max() < 5 or int(x.sum() * 1000) % 2"


@pytest.mark.parametrize(
    "entry", [linear(first=f"assert {SOME}"), linear(f"super().forward(x) * (1.0 if {SOME} else float('nan'))")]
)
def test_what_the_original_does_not_answer_is_no_fault_of_a_candidate(
    entry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask_first, asked = Checks._ask_first, list[Script]()

    def seen(self: Checks, *arguments: Any) -> Script:
        asked.append(ask_first(self, *arguments))
        return asked[-1]

    monkeypatch.setattr(Checks, "_ask_first", seen)
    with opened(tmp_path, {"bench.py": entry}) as referee:
        names = {"huge", "large", "scaled"}  # of which rounding decides whether they are answered
        large = next(each for each in referee.workload.variants[""] if names & {*each.split(", ")})
        for _ in range(20):
            finding = referee.check(referee.pristine).finding
            assert finding.verdict is None, finding.reason
            if asked and f"{large} values" in finding.evidence["checked"]:
                return
    raise AssertionError("every other seed is one that it does not answer")
