"""The error-ratio rule on raw bytes: what it accepts and what it finds."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tools.judging import accuracy
from tools.judging.accuracy import LeafError


@pytest.fixture
def leaf(saved: Any) -> Any:
    return lambda value: saved(value).leaves[0]


@pytest.fixture
def fails(leaf: Any) -> Any:
    """Why a candidate is wrong, beside a baseline and the truth."""
    return lambda candidate, baseline, truth: accuracy.fails(leaf(candidate), leaf(truth), leaf(baseline))


def test_another_order_of_summation_passes_and_a_silent_loss_of_precision_fails(fails: Any) -> None:
    x, w = torch.randn(64, 512), torch.randn(512, 128)
    truth = x.double() @ w.double()
    assert not fails((x.view(64, 8, 64).transpose(0, 1) @ w.view(8, 64, 128)).sum(0), x @ w, truth)
    assert fails((x.bfloat16() @ w.bfloat16()).float(), x @ w, truth)
    assert not fails(truth.bfloat16(), (x.bfloat16() @ w.bfloat16()), truth), "more exact than the original"


def test_one_zeroed_row_in_many_fails_although_the_global_error_is_small(fails: Any) -> None:
    value = torch.randn(32768, 64)
    wrong = value.clone()
    wrong[12345] = 0
    assert (wrong - value).norm() / value.norm() < 1e-2
    assert "row" in fails(wrong, value, value.double())


def test_the_original_may_err_and_the_candidate_twice_as_much(fails: Any) -> None:
    truth, baseline = torch.ones(4, 8, dtype=torch.float64), torch.full((4, 8), 1.01)
    assert not fails(torch.full((4, 8), 1.019), baseline, truth)
    assert fails(torch.full((4, 8), 1.021), baseline, truth)


def test_two_answers_to_the_same_may_be_apart_by_what_both_may_err(leaf: Any) -> None:
    value = torch.randn(8, 512)
    one, other, far = (leaf((value * factor).bfloat16()) for factor in (1.003, 0.997, 0.985))
    assert accuracy.fails(one, other, other) and not accuracy.differ(one, other)
    assert "row" in accuracy.differ(one, far)
    assert accuracy.differ(leaf(torch.tensor([1, 2])), leaf(torch.tensor([1, 3])))


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_must_be_where_the_original_has_it_with_its_sign(fails: Any, odd: float) -> None:
    value = torch.randn(3, 4)
    with_odd = value.clone()
    with_odd[1, 2] = odd
    assert not fails(with_odd, with_odd, value.double())
    assert fails(with_odd, value, value.double()) and fails(value, with_odd, value.double())
    if odd == odd:
        assert fails(torch.where(with_odd == odd, -odd, with_odd), with_odd, with_odd.double())


def test_integers_and_booleans_are_exact(leaf: Any) -> None:
    value = torch.arange(10)
    other = value.clone()
    other[3] += 1
    assert accuracy.leaf_error(leaf(value), leaf(value), leaf(value)) == LeafError()
    assert "1 of 10" in accuracy.leaf_error(leaf(other), leaf(value), leaf(value)).mismatch
    flags = value > 4
    assert accuracy.leaf_error(leaf(~flags), leaf(flags), leaf(flags)).mismatch


def test_rows_near_zero_are_measured_against_the_typical_row(fails: Any, leaf: Any) -> None:
    truth = torch.randn(100, 16, dtype=torch.float64)
    truth[7] = 1e-12 * truth[7]
    noisy = (truth + 1e-9 * torch.randn(100, 16, dtype=torch.float64)).float()
    assert not fails(noisy, noisy, truth)
    assert accuracy.leaf_error(leaf(noisy), leaf(truth), leaf(noisy)).row < 1e-4
    # of rows of one number: what a sum that cancels leaves is rounding, and falls otherwise in another order
    truth = torch.randn(256, 1, dtype=torch.float64)
    truth[5] = 1e-6
    baseline, candidate = truth.float(), truth.float()
    candidate[5] += 5e-7
    assert not fails(candidate, baseline, truth)
    candidate[5] += 5e-4
    assert fails(candidate, baseline, truth)


def test_an_output_that_should_be_all_zeros_must_be(fails: Any) -> None:
    zeros = torch.zeros(4, 4)
    assert not fails(zeros, zeros, zeros.double()) and fails(zeros + 1e-7, zeros, zeros.double())


def test_chunks_do_not_change_the_answer(leaf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    truth = torch.randn(50, 30, dtype=torch.float64)
    candidate = truth.float()
    candidate[49] += 0.1
    whole = accuracy.leaf_error(leaf(candidate), leaf(truth), leaf(truth.float()))
    monkeypatch.setattr(accuracy, "CHUNK", 64)
    assert accuracy.leaf_error(leaf(candidate), leaf(truth), leaf(truth.float())) == whole


def test_rows_in_which_the_original_takes_another_way_excuse_no_others(fails: Any) -> None:
    """As through a router that decides the other way in higher precision: so does a right candidate, elsewhere."""
    truth = torch.randn(64, 16, dtype=torch.float64)
    baseline, elsewhere, scaled, off = (truth.bfloat16() for _ in range(4))
    baseline[3], elsewhere[7], elsewhere[9] = -baseline[3], -elsewhere[7], -elsewhere[9]
    assert not fails(elsewhere, baseline, truth)
    assert "64 of them, allowed 2" in fails(torch.zeros_like(baseline), baseline, truth)
    scaled[9] *= 1.1
    off[9, 0] += 0.2 * off.abs().max()
    assert fails(scaled, baseline, truth) and fails(off, baseline, truth)


def test_where_the_truth_has_no_number_the_original_is_what_counts(fails: Any) -> None:
    baseline = torch.randn(8, 16)
    truth = baseline.double()
    truth[2:5] = float("nan")
    assert not fails(baseline, baseline, truth) and fails(torch.zeros_like(baseline), baseline, truth)


BASE = {"a": torch.ones(2, 2), "b": [torch.ones(3)]}


@pytest.mark.parametrize(
    ("other", "differs"),
    [
        ({"a": torch.zeros(2, 2), "b": [torch.zeros(3)]}, False),
        (BASE | {"b": (torch.ones(3),)}, True),
        (BASE | {"a": torch.ones(2, 2).double()}, True),
        (BASE | {"b": [torch.ones(4)]}, True),
        (BASE | {"a": torch.nn.Parameter(torch.ones(2, 2))}, True),
        ({"a": torch.ones(2, 2)}, True),
    ],
    ids=["values", "nesting", "dtype", "shape", "class", "count"],
)
def test_form_is_part_of_the_answer(saved: Any, other: Any, differs: bool) -> None:
    assert bool(accuracy.same_form(saved(other), saved(BASE))) is differs


def test_numbers_that_are_no_tensors_may_err_as_rounding_does(saved: Any) -> None:
    def holding(value: Any) -> Any:
        return saved({"loss": [value], "step": 1, "y": torch.ones(2)})

    base, nan, infinite = holding(0.5), holding(float("nan")), holding(float("inf"))
    assert accuracy.same_form(holding(0.5 + 1e-6), base) == "" and accuracy.same_form(nan, nan) == ""
    assert "a number in the result is 0.51, the original has 0.5" in accuracy.same_form(holding(0.51), base)
    assert accuracy.same_form(holding(0.51), base, holding(0.506)) == "", "twice as far from the truth as the original"
    assert accuracy.same_form(holding(0.52), base, holding(0.506))
    assert accuracy.same_form(holding(2.0), base, holding(2.0)), "a truth that is another function's"
    for one, other in ((nan, base), (base, nan), (infinite, base), (base, infinite), (holding(1), holding(1.5))):
        assert accuracy.same_form(one, other) and accuracy.same_form(one, other, base)


def test_what_has_no_number_is_none_and_what_has_some_is_one(leaf: Any) -> None:
    infinite, none = float("inf"), float("nan")
    for values in ([], [1.0], [1.0, -infinite]):
        assert accuracy.has_numbers(leaf(torch.tensor(values)))
    for values in ([infinite, -infinite], [1.0, none]):
        assert not accuracy.has_numbers(leaf(torch.tensor(values)))
