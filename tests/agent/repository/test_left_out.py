"""Rewrites of one class, of which each can be left out: the others bring along what they need at run time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from agent.repository.stack import Change
from tests.agent.lab import Lab
from tests.observed import Target, only, same_results
from tools.observation import Observation
from tools.rewrite import hoist, model_class, remember

BEFORE = """
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(16, 16) for _ in range(4)])

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x
"""
BODY = """
places = torch.arange(x.shape[1], device=x.device)[:, None] / x.shape[1]
return self.out(x + places + self.encoder(condition))
"""
INPUTS = "(torch.randn(2, 16, 16), torch.randn(2, 16, 16))\n\ndef constants():\n    return (1,)"


def hoisted(tree: Path, seen: Observation) -> Mapping[str, str]:
    return hoist.rewrite(tree, only(hoist.sites(tree, seen)))


def remembering(tree: Path, seen: Observation) -> Mapping[str, str]:
    return remember.rewrite(tree, only(remember.find(seen)))


def captured(tree: Path, seen: Observation) -> Mapping[str, str]:
    return model_class.compile_and_capture(tree, only(model_class.find(seen)), 'backend="eager"')


def test_each_rewrite_can_be_left_out_of_the_stack(lab: Lab) -> None:
    init = "self.encoder, self.out = Encoder(), nn.Linear(16, 16)"
    place = lab.tmp_path / "written"
    written = Target.of_forward(place, BODY, init, before=BEFORE, arguments="x, condition", inputs=INPUTS)
    stack = lab.stack({path.name: path.read_bytes() for path in place.iterdir()})
    changes = dict[str, Change]()
    for rewrite in (hoisted, remembering, captured):
        tree = lab.tree(stack, rewrite.__name__)
        name = rewrite.__name__
        changes[name] = lab.accept(stack, name, rewrite(tree, Target(tree).observe()))
    for left_out in changes:
        built = stack.build([change for name, change in changes.items() if name != left_out])
        assert isinstance(built, str), built
        stack.materialise(built, lab.run / f"without-{left_out}")
        after = Target(lab.run / f"without-{left_out}")
        marks = {"hoisted": "constant(", "remembering": "remembered(", "captured": "@graphed"}
        assert {name for name, mark in marks.items() if mark in after.text()} == marks.keys() - {left_out}
        assert same_results(written, after)
