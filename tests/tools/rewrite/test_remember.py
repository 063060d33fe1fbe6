"""What a part of a model computes again is found by what it reads, and remembered where its call can be named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.observed import Target, only, same_results
from tools.rewrite import CannotRewrite, remember

BEFORE = """
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(16, 16) for _ in range(4)])

    def forward(self, x, scale=1.0):
        for layer in self.layers:
            x = torch.tanh(layer(x)) * scale
        return x
"""
USES = "return self.out(x + {call})"
FRESH = "(torch.randn(2, 16), torch.randn(2, 16))"
INPUTS = f"{FRESH}\n\ndef constants():\n    return (1,)"


def target(tmp_path: Path, body: str, inputs: str = INPUTS, before: str = BEFORE) -> Target:
    init = "self.encoder, self.out = Encoder(), nn.Linear(16, 16)"
    place = tmp_path / "tree"
    return Target.of_forward(place, body, init, before=before, arguments="x, condition", inputs=inputs)


def test_what_depends_on_constants_and_weights_is_remembered(tmp_path: Path) -> None:
    before = target(tmp_path, USES.format(call="self.encoder(condition, scale=0.5)"))
    site = only(remember.find(before.observe()))
    assert (site.module_class, site.detail["constant"]) == ("Model", True)
    assert [call["attribute"] for call in site.detail["calls"]] == ["encoder"] and (site.share or 0) > 0.3
    after = before.with_files(remember.rewrite(before.tree, site))
    assert "remembered(self.encoder, condition, scale=0.5)" in after.text()
    assert same_results(before, after)
    assert remember.find(after.observe()) == []


def test_what_is_computed_twice_in_a_call_is_too(tmp_path: Path) -> None:
    body = "a = self.encoder(x)\nb = self.encoder(\n    x\n)\nreturn a * b + condition"
    before = target(tmp_path, body, FRESH)
    site = only(remember.find(before.observe()))
    assert not site.detail["constant"] and len(site.detail["calls"]) == 1
    after = before.with_files(remember.rewrite(before.tree, site))
    assert after.text().count("remembered(") == 1 and same_results(before, after)


NOISY = BEFORE.replace("torch.tanh(layer(x)) * scale", "torch.tanh(layer(x)) + torch.randn(16)")


@pytest.mark.parametrize(
    ("body", "inputs", "before"),
    [
        (USES.format(call="self.encoder(x)"), INPUTS, BEFORE),
        (USES.format(call="self.encoder(condition + x.mean())"), INPUTS, BEFORE),
        ("c = self.encoder(condition)\nc += x\nreturn self.out(c)", INPUTS, BEFORE),
        (USES.format(call="self.encoder(condition)"), FRESH, BEFORE),
        (USES.format(call="self.encoder(condition)"), INPUTS, NOISY),
    ],
    ids=["given something new", "some of it is new", "its result is changed", "nothing is constant", "it is random"],
)
def test_what_is_not_computed_again_is_no_site(tmp_path: Path, body: str, inputs: str, before: str) -> None:
    found = remember.find(target(tmp_path, body, inputs, before).observe())
    assert [site for site in found if site.module_class == "Model"] == []


def test_a_call_by_another_name_is_left_alone(tmp_path: Path) -> None:
    before = target(tmp_path, "read = self.encoder\n" + USES.format(call="read(condition)"))
    with pytest.raises(CannotRewrite, match="called by another name"):
        remember.rewrite(before.tree, only(remember.find(before.observe())))
