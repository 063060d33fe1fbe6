"""Two threads that call at once meet wherever they share something, and neither waits for the other for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from tests import guest

together: Any = guest.module("together")
ONE, TWO = torch.ones(4), torch.full((4,), 2.0)


def run(function: Callable[[torch.Tensor], torch.Tensor], rounds: int = 1) -> tuple[Any, Any]:
    return together.run([partial(function, ONE), partial(function, TWO)], rounds, False)


def right(found: tuple[Any, Any]) -> bool:
    return all(
        torch.equal(each, torch.tanh(2 * given)) for got, given in zip(found, (ONE, TWO), strict=True) for each in got
    )


@pytest.mark.parametrize("trial", range(5))
def test_room_that_both_write_to_is_found_in_one_round(trial: int) -> None:
    room = torch.empty(4)
    assert not right(run(lambda x: torch.tanh(torch.mul(x, 2, out=room))))


def test_rooms_that_take_turns_are_found_in_some_rounds() -> None:
    """Turns that always change would never meet in one."""
    rooms, calls = [torch.empty(4), torch.empty(4)], list[int]()

    def function(x: torch.Tensor) -> torch.Tensor:
        calls.append(0)
        room = rooms[len(calls) % 2]
        for _ in range(10):
            torch.mul(x, 2, out=room)
        return torch.tanh(room)

    assert not right(run(function, rounds=64))


def test_what_shares_nothing_is_right() -> None:
    assert right(run(lambda x: torch.tanh(torch.mul(x, 2)), rounds=8))


def test_one_that_holds_what_the_other_waits_for_goes_on() -> None:
    lock, room = threading.Lock(), torch.empty(4)

    def function(x: torch.Tensor) -> torch.Tensor:
        with lock:
            return torch.tanh(torch.mul(x, 2, out=room))

    assert right(run(function, rounds=4))


def test_what_one_raises_is_raised() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        if x[0] > 1:
            raise LookupError("none")
        return torch.mul(x, 2)

    with pytest.raises(LookupError, match="none"):
        run(function, rounds=4)
