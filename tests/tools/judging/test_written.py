"""What calls write, into arguments and buffers, is judged against the truth as their results are."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests import guest
from tests.files import write_files
from tools.judging import correctness, imposters, inspection, tensors
from tools.judging.correctness import Rules
from tools.judging.script import Call, Case, Played, Script
from tools.judging.worker import WorkerFault

SCRIPT = Script((), (Call("first call", 0),))


def rounded(truth: torch.Tensor, error: float) -> torch.Tensor:
    """In 16 bits, as far off as a few layers leave it, each time elsewhere."""
    return (truth * (1 + error * (2 * torch.rand(truth.shape, dtype=torch.float64) - 1))).bfloat16()


def played(arguments: list[Path], outputs: list[Path] | None = None, state: Path | None = None) -> Played:
    return Played(dict(enumerate(outputs or [])), dict(enumerate(arguments)), {}, state, 0.0)


def test_what_is_written_into_an_argument_may_err_as_a_result_may(path: Any) -> None:
    before, truth = path([torch.zeros(32, 64).bfloat16()]), torch.randn(32, 64, dtype=torch.float64)

    def judged(candidate: torch.Tensor, wide: torch.Tensor) -> None:
        correctness._arguments(SCRIPT, *(played([path([x])]) for x in (candidate, original, wide)), [before])

    original = rounded(truth, 0.03)
    judged(rounded(truth, 0.03), truth)
    wrong = [(rounded(truth, 0.1), truth), (torch.zeros_like(original), truth)]
    # a truth that is none: another shape, another function
    wrong += [(rounded(truth, 0.03), truth[1:]), (torch.zeros_like(original), -truth)]
    for candidate, wide in wrong:
        with pytest.raises(correctness._Failed, match="ends up different"):
            judged(candidate, wide)


def test_what_is_added_to_an_argument_must_be_what_the_original_adds(path: Any) -> None:
    x = torch.randn(4, 4)
    theirs, other = played([path([x, x + 1])]), played([path([x, x + 2])])
    correctness._arguments(SCRIPT, theirs, theirs, theirs, [path([x])])
    with pytest.raises(correctness._Failed, match="argument 1 ends up different"):
        correctness._arguments(SCRIPT, other, theirs, theirs, [path([x])])


def test_a_buffer_may_err_as_a_result_may(path: Any) -> None:
    truth = torch.randn(32, 64, dtype=torch.float64)
    original = rounded(truth, 0.03)

    def judged(candidate: torch.Tensor) -> None:
        correctness._state(*(played([], state=path({"cache": x})) for x in (candidate, original, truth)))

    judged(rounded(truth, 0.03))
    with pytest.raises(correctness._Failed, match="holds other values"):
        judged(rounded(truth, 0.1))


def test_only_calls_that_write_are_asked_what_they_wrote(path: Any) -> None:
    script, x = Script((), tuple(Call("first call", draw) for draw in range(3))), torch.ones(3)
    after = played([path([x]), path([x + 1]), path([x, x])])
    assert correctness.written(script, after, [path([x])] * 3) == {1, 2}


def test_the_truth_saves_buffers_without_parameters(tmp_path: Path) -> None:
    text = "import torch\n\ndef build():\n    return torch.nn.BatchNorm1d(4)\n\ndef inputs(seed):\n    return ()\n"
    write_files(tmp_path, {"bench.py": text})
    reference: Any = guest.module("reference").Reference(str(tmp_path), "bench.py")
    with torch.enable_grad():
        reference.op_build()
    reference.op_save_state(str(tmp_path / "all"))
    reference.op_save_state(str(tmp_path / "buffers"), buffers=True)
    everything, buffers = (tensors.read(tmp_path / name).named() for name in ("all", "buffers"))
    assert set(everything) - set(buffers) == {"weight", "bias"} and "running_mean" in buffers


def test_an_answer_that_comes_again_may_be_off_by_as_much_as_the_original_is(path: Any) -> None:
    torch.manual_seed(0)
    truth, repeats = torch.randn(8, 16), Script((), (Call("repeat", 0), Call("repeat: same data", 0)))
    original, once = rounded(truth, 0.01), [path(rounded(truth, 0.01))]

    def judged(again: torch.Tensor) -> None:
        answers = [path(each) for each in (original, original, truth, truth)]
        candidate, theirs, wide = [*once, path(again)], answers[:2], answers[2:]
        correctness._repeats(repeats, *(played([], each) for each in (candidate, theirs, wide)))

    judged(rounded(truth, 0.005))
    with pytest.raises(correctness._Failed, match="not the same as before"):
        judged(rounded(truth, 0.1))


@pytest.mark.parametrize("second", [torch.ones(3), [torch.ones(2), torch.ones(2)]])
def test_two_answers_of_other_shapes_are_not_deterministic(second: Any, path: Any, tmp_path: Path) -> None:
    both = [path(torch.ones(2)), path(second)]
    answers = [tensors.read(each) for each in both]
    repeats = Script((), (Call("repeat", 0), Call("repeat: after poison", 0)))
    correctness._repeats(repeats, *(played([], both) for _ in range(3)))
    for rights in (answers, answers[::-1]):
        assert imposters.passing(rights, rights[0], Rules()) == ""
    found: Any = SimpleNamespace(run_once=lambda case, seed: (answers.pop(0), 0.0))
    rng: Any = SimpleNamespace(randrange=lambda most: 1)
    with pytest.raises(WorkerFault) as fault:
        inspection._same_twice(found, Case("", {}), rng)
    assert fault.value.kind == "not_deterministic"
