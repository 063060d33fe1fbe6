"""Targets whose calls fill, empty or return as many tensors as they like are judged, or refused by name."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from tests.tools.judging.opened import opened
from tools.judging import correctness, imposters, inspection, tensors
from tools.judging.correctness import Rules
from tools.judging.inspection import Inspection
from tools.judging.script import Call, Played, Script
from tools.judging.worker import WorkerFault
from tools.judging.workload import Case

ENTRY = """
import torch

class Model(torch.nn.Linear):
    def forward(self, x, cache):
        cache["x"] = super().forward(x)
        cache["spare"].clear()
        return cache["x"].relu()

def build():
    torch.manual_seed(0)
    return Model(8, 8).eval()

def inputs(seed):
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(seed))
    return {"x": x, "cache": {"spare": [x + 1, x + 2]}}
"""


def test_a_call_that_fills_and_empties_what_it_is_given_is_judged(tmp_path: Path) -> None:
    with opened(tmp_path, {"bench.py": ENTRY}) as referee:
        assert referee.check_pristine().finding.verdict is None


def played(outputs: list[Path], arguments: list[Path]) -> Played:
    return Played(dict(enumerate(outputs)), dict(enumerate(arguments)), {}, None, 0.0)


def test_what_is_added_to_an_argument_must_be_what_the_original_adds(path: Any) -> None:
    script, x = Script((), (Call("first call", 0),)), torch.randn(4, 4)
    theirs, other = played([], [path([x, x + 1])]), played([], [path([x, x + 2])])
    correctness._arguments(script, theirs, theirs, theirs, [path([x])])
    with pytest.raises(correctness._Failed, match="argument 1 ends up different"):
        correctness._arguments(script, other, theirs, theirs, [path([x])])


def test_an_original_whose_two_answers_have_other_shapes_says_nothing_of_repeats(path: Any) -> None:
    script = Script((), (Call("repeat", 0), Call("repeat: after poison", 0)))
    for second in (torch.ones(3), [torch.ones(2), torch.ones(2)]):
        both = played([path(torch.ones(2)), path(second)], [])
        correctness._repeats(script, both, both)


@pytest.mark.parametrize("second", [torch.ones(3), [torch.ones(2), torch.ones(2)]])
def test_an_original_that_returns_other_shapes_for_the_same_input_is_not_deterministic(second: Any, path: Any) -> None:
    answers = [tensors.read(path(torch.ones(2))), tensors.read(path(second))]
    found = cast(Inspection, SimpleNamespace(run_once=lambda case, seed: (answers.pop(0), 0.0)))
    with pytest.raises(WorkerFault) as fault:
        inspection._same_twice(found, Case("", {}), cast(Any, SimpleNamespace(randrange=lambda most: 1)))
    assert fault.value.kind == "not_deterministic"


def test_answers_of_other_numbers_of_tensors_have_no_mean(path: Any, tmp_path: Path) -> None:
    few, many = (tensors.read(path([torch.randn(4, 4)] * count)) for count in (1, 2))
    for rights in ([few, many], [many, few]):
        assert imposters.passing(rights, rights[0], Rules(), tmp_path) == ""
