"""The error-ratio rule on raw bytes: what it accepts and what it finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests import guest
from tools.judging import accuracy, tensors
from tools.judging.accuracy import LeafError


@pytest.fixture
def leaf(tmp_path: Path) -> Any:
    def make(value: Any) -> tensors.Leaf:
        path = tmp_path / str(len(list(tmp_path.iterdir())))
        guest.module("tensors").save(str(path), value)
        return tensors.read(path).leaves[0]

    return make


def verdict(leaf: Any, candidate: Any, baseline: Any, truth: Any) -> accuracy.Finding:
    c, b, t = leaf(candidate), leaf(baseline), leaf(truth)
    return accuracy.judge_leaf(accuracy.leaf_error(c, t, b), accuracy.leaf_error(b, t, b), c.dtype)


def test_another_order_of_summation_passes(leaf: Any) -> None:
    x, w = torch.randn(64, 512), torch.randn(512, 128)
    truth = x.double() @ w.double()
    candidate = (x.view(64, 8, 64).transpose(0, 1) @ w.view(8, 64, 128)).sum(0)
    assert verdict(leaf, candidate, x @ w, truth).passed


def test_one_zeroed_row_in_many_fails_although_the_global_error_is_small(leaf: Any) -> None:
    value = torch.randn(32768, 64)
    wrong = value.clone()
    wrong[12345] = 0
    assert (wrong - value).norm() / value.norm() < 1e-2
    found = verdict(leaf, wrong, value, value.double())
    assert not found.passed and "row" in found.reason


def test_a_silent_loss_of_precision_fails(leaf: Any) -> None:
    x, w = torch.randn(64, 512), torch.randn(512, 128)
    halves = (x.bfloat16() @ w.bfloat16()).float()
    assert not verdict(leaf, halves, x @ w, x.double() @ w.double()).passed


def test_a_candidate_more_exact_than_the_original_passes(leaf: Any) -> None:
    x, w = torch.randn(64, 512), torch.randn(512, 128)
    truth = x.double() @ w.double()
    assert verdict(leaf, truth.bfloat16(), (x.bfloat16() @ w.bfloat16()), truth).passed


def test_the_original_may_err_and_the_candidate_twice_as_much(leaf: Any) -> None:
    truth = torch.ones(4, 8, dtype=torch.float64)
    baseline = torch.full((4, 8), 1.01)
    assert verdict(leaf, torch.full((4, 8), 1.019), baseline, truth).passed
    assert not verdict(leaf, torch.full((4, 8), 1.021), baseline, truth).passed


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_must_be_where_the_original_has_it(leaf: Any, odd: float) -> None:
    value = torch.randn(3, 4)
    with_odd = value.clone()
    with_odd[1, 2] = odd
    assert verdict(leaf, with_odd, with_odd, value.double()).passed
    assert not verdict(leaf, with_odd, value, value.double()).passed
    assert not verdict(leaf, value, with_odd, value.double()).passed


def test_infinity_of_the_wrong_sign_fails(leaf: Any) -> None:
    up, down = torch.tensor([[1.0, float("inf")]]), torch.tensor([[1.0, float("-inf")]])
    assert not verdict(leaf, down, up, up.double()).passed


def test_integers_and_booleans_are_exact(leaf: Any) -> None:
    value = torch.arange(10)
    other = value.clone()
    other[3] += 1
    assert accuracy.leaf_error(leaf(value), leaf(value), leaf(value)) == LeafError()
    assert "1 of 10" in accuracy.leaf_error(leaf(other), leaf(value), leaf(value)).mismatch
    flags = value > 4
    assert accuracy.leaf_error(leaf(~flags), leaf(flags), leaf(flags)).mismatch


def test_rows_near_zero_are_measured_against_the_typical_row(leaf: Any) -> None:
    truth = torch.randn(100, 16, dtype=torch.float64)
    truth[7] = 1e-12 * truth[7]
    noisy = (truth + 1e-9 * torch.randn(100, 16, dtype=torch.float64)).float()
    assert verdict(leaf, noisy, noisy, truth).passed
    error = accuracy.leaf_error(leaf(noisy), leaf(truth), leaf(noisy))
    assert error.row < 1e-4


def test_an_output_that_should_be_all_zeros_must_be(leaf: Any) -> None:
    zeros = torch.zeros(4, 4)
    assert verdict(leaf, zeros, zeros, zeros.double()).passed
    assert not verdict(leaf, zeros + 1e-7, zeros, zeros.double()).passed


def test_chunks_do_not_change_the_answer(leaf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    truth = torch.randn(50, 30, dtype=torch.float64)
    candidate = truth.float()
    candidate[49] += 0.1
    whole = accuracy.leaf_error(leaf(candidate), leaf(truth), leaf(truth.float()))
    monkeypatch.setattr(accuracy, "CHUNK", 64)
    assert accuracy.leaf_error(leaf(candidate), leaf(truth), leaf(truth.float())) == whole


def test_form_is_part_of_the_answer(tmp_path: Path) -> None:
    save = guest.module("tensors").save

    def saved(name: str, value: Any) -> tensors.Saved:
        save(str(tmp_path / name), value)
        return tensors.read(tmp_path / name)

    base = saved("base", {"a": torch.ones(2, 2), "b": [torch.ones(3)]})
    assert accuracy.same_form(saved("same", {"a": torch.zeros(2, 2), "b": [torch.zeros(3)]}), base) == ""
    for name, other in {
        "nesting": {"a": torch.ones(2, 2), "b": (torch.ones(3),)},
        "dtype": {"a": torch.ones(2, 2).double(), "b": [torch.ones(3)]},
        "shape": {"a": torch.ones(2, 2), "b": [torch.ones(4)]},
        "class": {"a": torch.nn.Parameter(torch.ones(2, 2)), "b": [torch.ones(3)]},
        "count": {"a": torch.ones(2, 2)},
    }.items():
        assert accuracy.same_form(saved(name, other), base), name


def test_rows_in_which_the_original_takes_another_way_excuse_no_others(leaf: Any) -> None:
    """As through a router that decides the other way in higher precision: so does a right candidate, elsewhere."""
    truth = torch.randn(64, 16, dtype=torch.float64)
    baseline, elsewhere = truth.bfloat16(), truth.bfloat16()
    baseline[3], elsewhere[7], elsewhere[9] = -baseline[3], -elsewhere[7], -elsewhere[9]
    assert verdict(leaf, elsewhere, baseline, truth).passed
    found = verdict(leaf, torch.zeros_like(baseline), baseline, truth)
    assert not found.passed and "64 of them, allowed 2" in found.reason
    off = truth.bfloat16()
    off[9] *= 1.1
    assert not verdict(leaf, off, baseline, truth).passed
    off = truth.bfloat16()
    off[9, 0] += 0.2 * off.abs().max()
    assert not verdict(leaf, off, baseline, truth).passed


def test_where_the_truth_has_no_number_the_original_is_what_counts(leaf: Any) -> None:
    baseline = torch.randn(8, 16)
    truth = baseline.double()
    truth[2:5] = float("nan")
    assert verdict(leaf, baseline, baseline, truth).passed
    assert not verdict(leaf, torch.zeros_like(baseline), baseline, truth).passed


def test_rows_of_one_number_near_zero_are_measured_against_the_others(leaf: Any) -> None:
    """Of a sum that cancels, rounding is all that is left, and it falls otherwise in another order."""
    truth = torch.randn(256, 1, dtype=torch.float64)
    truth[5] = 1e-6
    baseline, candidate = truth.float(), truth.float()
    candidate[5] += 5e-7
    assert verdict(leaf, candidate, baseline, truth).passed
    candidate[5] += 5e-4
    assert not verdict(leaf, candidate, baseline, truth).passed


def test_numbers_that_are_no_tensors_may_err_as_rounding_does(tmp_path: Path) -> None:
    def saved(value: Any) -> tensors.Saved:
        path = tmp_path / str(len(list(tmp_path.iterdir())))
        guest.module("tensors").save(str(path), {"loss": [value], "step": 1, "y": torch.ones(2)})
        return tensors.read(path)

    base, nan, infinite = saved(0.5), saved(float("nan")), saved(float("inf"))
    assert accuracy.same_form(saved(0.5 + 1e-6), base) == "" and accuracy.same_form(nan, nan) == ""
    assert "a number in the result is 0.51, the original has 0.5" in accuracy.same_form(saved(0.51), base)
    assert accuracy.same_form(saved(0.51), base, saved(0.506)) == "", "twice as far from the truth as the original"
    assert accuracy.same_form(saved(0.52), base, saved(0.506))
    assert accuracy.same_form(saved(2.0), base, saved(2.0)), "a truth that is another function's"
    for one, other in ((nan, base), (base, nan), (infinite, base), (base, infinite), (saved(1), saved(1.5))):
        assert accuracy.same_form(one, other) and accuracy.same_form(one, other, base)
