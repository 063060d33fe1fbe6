"""A change brings along the runtime files that it uses, and no others."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.observed import Target, only
from tools.rewrite import model_class, ops_package, remember
from tools.rewrite.ops_package import Asset

USED = {
    "CONSTANT": "constants eager kept streams",
    "PADDED_LINEAR": "padded_linear plain_linears processes",
    "GRAPHED": "arguments class_calls eager graphed kept lent per_module undone watched",
    "REMEMBERED": "computed eager generators kept per_module remembered sampled streams watched",
    "GROUPED_MATMUL": "grouped_matmul",
}
ENCODER = "self.encoder = nn.Linear(16, 16)\nself.out = nn.Linear(16, 16)"


def names(asset: Asset) -> str:
    return " ".join(sorted(name.removesuffix(".py") for name in asset.files()))


@pytest.mark.parametrize("name", USED)
def test_it_brings_what_it_imports(name: str) -> None:
    assert names(getattr(ops_package, name)) == USED[name]


@pytest.mark.parametrize("remembers_first", [True, False])
def test_what_connects_two_of_them_comes_with_the_second(tmp_path: Path, remembers_first: bool) -> None:
    body = "return self.out(x + self.encoder(condition))"
    inputs = "(torch.randn(2, 16), torch.randn(2, 16))\n\ndef constants():\n    return (1,)"
    target = Target.of_forward(tmp_path / "tree", body, ENCODER, arguments="x, condition", inputs=inputs)
    ways = [lambda seen, tree: remember.rewrite(tree, only(remember.find(seen)))]
    ways.insert(remembers_first, lambda seen, tree: model_class.capture(tree, only(model_class.find(seen))))
    for number, way in enumerate(ways):
        changed = way(target.observe(), target.tree)
        assert ("ratchet_ops/recording.py" in changed) == (number == 1)
        target = target.with_files(changed)


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`graphed` as the only asset of a package."""
    Target.write(tmp_path / "graphed_alone", ops_package.GRAPHED.files())
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("graphed_alone.graphed")
    for name in [name for name in sys.modules if name.startswith("graphed_alone")]:
        del sys.modules[name]


def test_nothing_stays_out_of_recordings_where_nothing_is_remembered(alone: Any) -> None:
    assert "graphed_alone.recording" not in sys.modules
    made = alone.Recording([torch.ones(1)])
    with made.being_made():
        assert made.refresh([torch.ones(1)]) and made.holds()


@pytest.mark.gpu
def test_calls_are_recorded_without_what_connects_them_to_others(alone: Any) -> None:
    @alone.graphed  # type: ignore[untyped-decorator]
    class Model(nn.Linear):
        pass

    model, x = Model(4, 4).cuda().eval(), torch.randn(2, 4, device="cuda")
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(model(x), nn.functional.linear(x, model.weight, model.bias))
    assert any(alone._recorders.get(model).graphs.values())
