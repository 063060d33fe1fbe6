"""Other weights of a model matter, and what changes in them follows from a seed and names alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests import guest
from tools.judging import script

states: Any = guest.module("states")
values: Any = guest.module("values")


class Gated(torch.nn.Module):
    """Branches that begin at zero and at next to nothing, a mask, positions and integers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.unused = torch.nn.Linear(8, 8), torch.nn.Parameter(torch.ones(3))
        self.zero, self.tiny = torch.nn.Parameter(torch.zeros(8, 8)), torch.nn.Parameter(torch.full((8,), 1e-6))
        self.faint = torch.nn.Parameter(torch.full((8,), 1e-4))
        self.register_buffer("mask", torch.ones(4, 4).tril())
        self.register_buffer("positions", torch.arange(8))
        self.register_buffer("packed", torch.randint(-99, 99, (64,), dtype=torch.int8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) + x @ self.zero + self.tiny * x + self.faint * x


@pytest.fixture
def gated() -> Gated:
    torch.manual_seed(0)
    return Gated()


def test_another_checkpoint_is_one_that_somebody_could_have(gated: Gated) -> None:
    state = gated.state_dict()
    found = states.another(state, {"mask", "positions", "packed"})
    assert found["zero"].abs().mean() > 0.1 and found["tiny"].abs().max() > 0.05
    assert torch.equal(found["mask"] == 0, state["mask"] == 0) and torch.equal(found["positions"], state["positions"])
    assert not torch.equal(found["packed"], state["packed"])
    assert torch.equal(found["packed"].sort().values, state["packed"].sort().values)
    plain = states.another(state, (), anew=False)
    assert not plain["zero"].any() and torch.equal(plain["packed"], state["packed"])


def test_what_has_next_to_no_effect_gets_more(gated: Gated) -> None:
    gated.zero.data.fill_(0.1)
    measured = states.effects(gated, lambda: [gated(torch.randn(5, 8))])
    assert measured["unused"] == 0 < measured["faint"] < states.LEAST_EFFECT < measured["zero"]
    stronger = states.strengthened(gated.state_dict(), measured)
    assert stronger["faint"].abs().max() > 10 * gated.faint.abs().max() and stronger["zero"].equal(gated.zero)
    assert states.effects(gated, lambda: [torch.ones(3)]) == {}


def test_each_means_of_the_guest_has_a_name_on_the_host() -> None:
    assert states.MEANS.keys() == script.CHANGES.keys()
    assert {*values.SIZES} == {*script.OTHER_SIZES} and values.STRIDED == script.STRIDED
    assert values.ROWS_APART == script.ROWS_APART and values.OTHER_CONSTANTS == script.OTHER_CONSTANTS
    assert script.NOT_A_NUMBER in values.VALUES


@pytest.mark.parametrize("means", [means for means in states.MEANS if means != "enlarged"])
def test_two_halves_of_the_weights_change_and_keep_their_numbers(gated: Gated, means: str) -> None:
    again, before = Gated(), {name: each.clone() for name, each in gated.state_dict().items()}
    again.load_state_dict(before)
    states.change_some(gated, means, 6)
    states.change_some(again, "step", 6)
    for name, each in gated.state_dict().items():
        here = again.state_dict()[name]
        assert each.equal(before[name]) == here.equal(before[name])  # the same weights, whatever the means
        assert means in states.UNCOUNTED or each.equal(here)
    if means in states.UNCOUNTED:
        assert (gated.layer.weight != before["layer.weight"]).any(1).sum() <= 1  # a row
    first = {name for name, each in gated.state_dict().items() if not each.equal(before[name])}
    states.change_some(gated, means, 7)
    both = {name for name, each in gated.state_dict().items() if not each.equal(before[name])}
    assert first and both - first and "packed" in both and "positions" not in both
    for name in both:
        assert torch.equal(gated.state_dict()[name].flatten().sort().values, before[name].flatten().sort().values)


def test_matrices_alone_are_made_larger(gated: Gated) -> None:
    before = {name: each.clone() for name, each in gated.named_parameters()}
    states.change_some(gated, "enlarged", 1)
    for name, each in gated.named_parameters():
        assert torch.equal(each, before[name] * (8 if each.dim() > 1 else 1))


def test_other_modules_come_in_the_place_of_some(gated: Gated) -> None:
    layer, weight = gated.layer, gated.layer.weight.clone()
    states.replace_some(gated)
    assert gated.layer is not layer and torch.equal(gated.layer.weight, weight * 0.875)


def test_of_gains_that_all_have_one_sign_some_are_turned_and_complex_numbers_are_others() -> None:
    state = {"gain": torch.ones(16), "filter": torch.randn(8, dtype=torch.complex64)}
    found = states.another(state, turned=True)
    assert (found["gain"] < 0).sum() == 2 and (states.another(state)["gain"] > 0).all()
    assert found["filter"].dtype == torch.complex64 and not torch.equal(found["filter"], state["filter"])
    assert torch.equal(states.another(state, {"gain", "filter"}, turned=True)["filter"], state["filter"])


def test_only_the_counted_means_count(gated: Gated) -> None:
    weight = gated.layer.weight
    version = weight._version
    for means, seed in (("data", 2), ("data", 3), ("numpy", 2), ("numpy", 3)):
        states.change_some(gated, means, seed)
    assert weight._version == version and gated.layer.weight is weight
    with torch.no_grad():
        states.change_some(gated, "step", 2)
        states.change_some(gated, "step", 3)
    assert weight._version > version
    states.change_some(gated, "assign", 2)
    assert gated.layer.weight is not weight
