"""Other inputs than an entry draws: what of the arguments changes, and that it follows from the seed."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests import guest

tensors: Any = guest.module("tensors")
values: Any = guest.module("values")


LOOKED_UP = {1: 1000}  # the ids


def varied(variant: str, seed: int = 1, rows: dict[int, int] = LOOKED_UP) -> Any:
    torch.manual_seed(0)
    given = {
        "x": torch.randn(4, 6, 8),
        "ids": torch.randint(5, (4, 6)),
        "mask": torch.ones(4, 6, dtype=torch.long),
        "scale": 2.0,
        "steps": 3,
    }
    structure, flat = tensors.flatten(given)
    changed = values.varied(variant, structure, flat, seed, rows)
    return given, tensors.unflatten(*changed), values.is_varied(structure, flat, *changed)


@pytest.mark.parametrize(
    ("variant", "changes"),
    [
        ("negated", {"x", "ids"}),
        ("huge", {"x"}),
        ("padded", {"mask"}),
        ("any row", {"ids"}),
        ("other numbers", {"scale"}),
        ("padded, any row, other numbers", {"mask", "ids", "scale"}),
        ("one row", {"x", "ids", "mask"}),
        ("half as long, tiny", {"x", "ids", "mask"}),
        ("strided", set()),
        ("sorted, negated", {"x", "ids"}),
        ("rows alike", {"x", "ids"}),
        ("full and empty", {"mask"}),
        ("no such row", {"ids"}),
        ("twice as long", {"x", "ids", "mask"}),
        ("wider, another type", {"x"}),
        ("wider images", set()),
        ("of length one", {"x", "ids", "mask"}),
        ("masks of another type", {"mask"}),
        ("minus one", set()),
        ("twice as many", {"steps"}),
        ("padded, gaps", {"mask", "x"}),
        ("a row of zeros", {"x"}),
    ],
)
def test_a_variant_changes_what_it_says(variant: str, changes: set[str]) -> None:
    given, found, is_varied = varied(variant)
    pairs = {name: (torch.as_tensor(given[name]), torch.as_tensor(found[name])) for name in given}
    same = {name: a.dtype == b.dtype and torch.equal(a, b) for name, (a, b) in pairs.items()}
    differ = {name for name in given if not same[name]}
    assert differ == changes and is_varied == bool(changes)
    _, again, _ = varied(variant)
    pairs = {name: (torch.as_tensor(found[name]), torch.as_tensor(again[name])) for name in found}
    assert all(a.allclose(b, rtol=0, atol=0, equal_nan=True) for a, b in pairs.values())


def test_integers_that_name_no_rows_may_be_negative() -> None:
    assert varied("minus one", rows={})[1]["ids"].min() == -1


@pytest.mark.parametrize("variant", ["minus one", "constant", "nearly constant"])
def test_of_positions_none_comes_twice(variant: str) -> None:
    """What is written to one place twice may be either."""
    structure, flat = tensors.flatten([torch.arange(6), torch.arange(6).expand(4, 6), torch.tensor([5])])
    for given, found in zip(flat, values.varied(variant, structure, flat, 1, {})[1], strict=True):
        assert (found.diff() > 0).all() and torch.equal(found[..., 1:], given[..., 1:])
        assert (found[..., 0] == -1).all() == (variant == "minus one")


def test_sizes_rows_and_padding_are_what_a_model_may_be_given() -> None:
    _, found, _ = varied("three rows, half as long, padded, any row")
    assert found["x"].shape == (3, 3, 8) and found["ids"].shape == found["mask"].shape == (3, 3)
    assert found["ids"].max() >= 5 and found["ids"].max() < 1000
    left_out = found["mask"] == 0  # at the end, and of every second item at the beginning
    assert left_out[::2, -1].all() and left_out[1::2, 0].all() and not left_out[::2, 0].any()


def test_what_is_given_twice_is_given_apart() -> None:
    x = torch.randn(3, 4)
    structure, flat = tensors.flatten((x, x), once=True)
    changed = values.varied("apart", structure, flat, 1, {})
    first, second = tensors.unflatten(*changed)
    assert torch.equal(first, x) and not torch.equal(second, x) and second.shape == x.shape
    assert values.is_varied(structure, flat, *changed)


def test_what_is_no_number_is_all_of_the_first_row() -> None:
    _, found, _ = varied("not a number")
    assert found["x"][0].isnan().all() and not found["x"][1:].isnan().any()


def test_of_a_second_row_that_is_not_the_last_all_is_infinite() -> None:
    _, found, _ = varied("three rows, not a number")
    assert found["x"][1].isinf().all() and len({*found["x"][1].sign().flatten().tolist()}) == 2
    assert found["x"][2].isfinite().all()


@pytest.mark.parametrize("least", [-1e9, float("-inf")])
def test_what_is_added_to_scores_is_a_mask_too(least: float) -> None:
    given = torch.zeros(3, 1, 6)
    given[0, 0, 4:] = least
    _, (found,) = values.varied("padded, full and empty", *tensors.flatten(given), 1, {})
    assert (found[0] == 0).all() and (found[2] == least).all()
    assert found[1, 0, 0] == least and found[1, 0, 5] == 0
    for none in (torch.zeros(3, 6), torch.randn(3, 6)):
        _, (same,) = values.varied("padded, full and empty", *tensors.flatten(none), 1, {})
        assert torch.equal(same, none)


def test_another_place_has_the_same_numbers_among_others() -> None:
    x = torch.randn(3, 4)
    for how, stride in ((values.STRIDED, (9, 2)), (values.ROWS_APART, (7, 1))):
        elsewhere = values.in_another_place(x, how)
        assert torch.equal(elsewhere, x) and elsewhere.stride() == stride and elsewhere.storage_offset() == 1
