"""What an observer tells comes in only in the form it has to have: the guest that tells it is the target's process."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from pydantic import ValidationError

from tests.observed import Target
from tools.observation import Observation

MODEL = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = 0.25
        self.a, self.b, self.act = nn.Linear(16, 16), nn.Linear(16, 16), nn.SiLU()

    def forward(self, x):
        scores = x @ x.transpose(-1, -2) * self.scale
        mask = torch.full((x.shape[-2], x.shape[-2]), float("-inf")).triu(1)
        x = (scores + mask).softmax(-1) @ x.clone()
        return self.act(self.a(x)) * self.b(x)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x):
        return self.block(x)
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    tree = tmp_path_factory.mktemp("observed") / "tree"
    return json.loads(json.dumps(Target.of_model(tree, MODEL).told()))


def test_what_a_guest_tells_has_the_form_and_is_kept(told: dict[str, Any]) -> None:
    seen = Observation.model_validate(told)
    assert [group.names for group in seen.linear_groups] == [["a", "b"]]
    assert seen.callable.outermost[0].name == "Model"
    assert seen.attention and seen.gated and seen.constants and seen.copies
    assert {row.name for row in seen.classes} >= {"Block", "Linear"}
    kept = json.loads(seen.model_dump_json(by_alias=True))
    assert kept["linear_groups"] == told["linear_groups"] and kept["classes"] == told["classes"]
    assert Observation.model_validate({**told, "later": 1}) == seen, "what a newer guest tells besides is left out"


def changed(told: dict[str, Any], path: tuple[str | int, ...], value: object) -> dict[str, Any]:
    found = copy.deepcopy(told)
    place: Any = found
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return found


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("classes", 0, "class"), None),
        (("classes", 0, "line"), -1),
        (("classes",), []),
        (("linear_groups", 0, "share"), float("nan")),
        (("linear_groups", 0, "layers", 0), "all of them"),
        (("attention", 0, "frames"), {"file": "model.py"}),
        (("gated", 0, "count"), True),
        (("constants", 0, "frames", 0, "file"), "x" * 100_000),
    ],
)
def test_nothing_else_comes_in(told: dict[str, Any], path: tuple[str | int, ...], value: object) -> None:
    if value == []:  # a table may be empty, and may not be endless
        value = told["classes"] * 1000
    with pytest.raises(ValidationError):
        Observation.model_validate(changed(told, path, value))
