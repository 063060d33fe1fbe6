"""What may change is told from what stays: plain values, tensors, and generators of random numbers."""

from __future__ import annotations

import itertools
from typing import Any

import torch

from tests import assets

kept = assets.load("amd-kernel-optimization", "kept")
VALUES: list[Any] = [0.0, -0.0, 0, False, 1, 1.0, True, 1j, complex(0.0, -0.0), 0j, "1", b"1", None, float("nan")]
VALUES += [float("inf"), torch.float32, torch.device("cpu"), torch.Size([1]), torch.Size([1, 1])]


def test_plain_values_are_told_from_others_that_only_compare_equal() -> None:
    exactly = kept.exactly
    assert all(exactly(one) != exactly(other) for one, other in itertools.combinations(VALUES, 2))
    assert exactly(float("nan")) == exactly(float("nan")) and exactly(2.5) == exactly(5 / 2)
    assert len(set(map(exactly, VALUES))) == len(VALUES)


def test_a_tensor_is_the_same_until_it_is_written_to() -> None:
    one, other = torch.ones(2), torch.ones(2)
    same = kept.Same(one)
    assert same.is_still(one) and not same.is_still(other) and same.is_unwritten(other)
    one.add_(1)
    assert not same.is_still(one)
    with torch.inference_mode():
        assert not kept.Same(uncounted := torch.ones(2)).is_still(uncounted)
