"""A script is played as it is written: which weights change is what each of its steps says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tools.judging.player import Player
from tools.judging.script import Poison, Script, Transform


def test_each_step_changes_the_weights_that_it_names() -> None:
    asked: list[Any] = []
    worker: Any = SimpleNamespace(ask=lambda op, **arguments: asked.append((op, arguments)))
    workload: Any = SimpleNamespace(states={})
    Player(workload, worker, Script((), (Transform("data", 6), Poison(), Transform("data", 7))), [], "x").play()
    changes = [("transform", {"name": "data", "seed": seed}) for seed in (6, 7)]
    assert asked == [changes[0], ("poison", {}), changes[1]]
