"""Other values of the same shapes, which the reference draws."""

from __future__ import annotations

import torch
from torch.nn.functional import layer_norm

from tests import guest


def constant(tensor: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = guest.module("reference").VARIANTS["constant"](tensor)
    assert (found.shape, found.dtype) == (tensor.shape, tensor.dtype)
    return found


def normalised(x: torch.Tensor) -> torch.Tensor:
    return layer_norm(x, x.shape[-1:])


def written_otherwise(x: torch.Tensor) -> torch.Tensor:
    """As a compiler may do it: another order of the sum."""
    away = x - x.cumsum(-1)[:, -1:] / x.shape[-1]
    return away * torch.rsqrt(away.square().mean(-1, keepdim=True) + 1e-5)


def test_layers_that_normalise_constant_values_are_not_wrong_for_their_rounding() -> None:
    """Of values that are all the same, it is all that is left, and a second layer makes it large."""
    x, weight = torch.cat([constant(torch.randn(1, 384)) for _ in range(20)]), torch.randn(384, 384) / 384**0.5
    truth = normalised(normalised(x.double()) @ weight.double()).float()
    for norm in (normalised, written_otherwise):
        torch.testing.assert_close(norm(norm(x) @ weight), truth, atol=1e-3, rtol=1e-3)
    assert ((x.std(-1) / x.mean(-1)).abs() < 0.05).all(), "they are nearly constant"


def test_what_has_no_rounding_is_all_alike() -> None:
    for given in (torch.arange(3, 9), torch.tensor([True, False])):
        assert torch.equal(constant(given), given[:1].expand_as(given))
    for empty in (torch.ones(0), torch.zeros(2, 0)):
        assert constant(empty).numel() == 0
    constant(torch.ones(4, dtype=torch.bfloat16))
