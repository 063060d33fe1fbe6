"""Plain values are told from others that only compare equal."""

from __future__ import annotations

import itertools
from typing import Any

import torch

from tests import assets

exactly = assets.load("amd-kernel-optimization", "plain").exactly
VALUES: list[Any] = [0.0, -0.0, 0, False, 1, 1.0, True, 1j, complex(0.0, -0.0), 0j, "1", b"1", None, float("nan")]
VALUES += [float("inf"), torch.float32, torch.device("cpu"), torch.Size([1]), torch.Size([1, 1])]


def test_what_is_the_same_and_what_is_not() -> None:
    assert all(exactly(one) != exactly(other) for one, other in itertools.combinations(VALUES, 2))
    assert exactly(float("nan")) == exactly(float("nan")) and exactly(2.5) == exactly(5 / 2)
    assert len(set(map(exactly, VALUES))) == len(VALUES)
