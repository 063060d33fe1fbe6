"""What is known of a module goes with it, and stays away from its copies."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from torch import nn

from tests import assets

per_module = assets.load("amd-kernel-optimization", "per_module")


class Value:
    def __init__(self, held: Any) -> None:
        self.held = held


def test_each_module_has_its_own_of_each_kind() -> None:
    one, other = per_module.PerModule(), per_module.PerModule()
    modules = nn.Identity(), nn.Identity()
    one[modules[0]], other[modules[0]] = 1, 2
    assert (one.get(modules[0]), other.get(modules[0]), one.get(modules[1])) == (1, 2, None)
    one[modules[0]] = 3
    assert one.get(modules[0]) == 3


@pytest.mark.parametrize("made", [copy.copy, copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
def test_copies_have_none_and_get_their_own(made: Callable[[nn.Module], nn.Module]) -> None:
    known, module = per_module.PerModule(), nn.Linear(2, 2)
    known[module] = Value(vars(module))
    copied = made(module)
    assert known.get(copied) is None and known.get(module) is not None
    known[copied] = 7
    assert known.get(copied) == 7 and known.get(module) != 7


def test_what_holds_the_attributes_goes_at_once() -> None:
    known, module = per_module.PerModule(), nn.Linear(2, 2)
    known[module] = value = Value(vars(module))
    gone = weakref.ref(value), weakref.ref(module.weight)
    gc.disable()
    try:
        del value, module
        assert [each() for each in gone] == [None, None]
    finally:
        gc.enable()


def test_a_module_that_leads_back_to_itself_is_collected_with_it() -> None:
    known, module = per_module.PerModule(), nn.Linear(2, 2)
    module.compile()
    known[module] = Value(vars(module))
    gone = weakref.ref(module), weakref.ref(module.weight)
    del module
    gc.collect()
    assert [each() for each in gone] == [None, None]
