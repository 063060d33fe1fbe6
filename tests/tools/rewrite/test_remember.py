"""What a part of a model computes again is found by what it reads, and remembered where its call can be named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.observed import Target, only, same_results
from tools.rewrite import CannotRewrite, remember

MODEL = """
import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(16, 16) for _ in range(4)])
        self.drop = nn.Dropout(0.5)
        self.seen = 0

    def forward(self, x, scale=1.0):
        for layer in self.layers:
            x = torch.tanh(layer(x)) * scale
        return x


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.out = Encoder(), nn.Linear(16, 16)

    def forward(self, x, condition):
{body}
"""
USES = "        return self.out(x + {call})"
INPUTS = "(torch.randn(2, 16), torch.randn(2, 16))\n\ndef constants():\n    return (1,)"


def target(tmp_path: Path, body: str, inputs: str = INPUTS, change: tuple[str, str] = ("", "")) -> Target:
    return Target.of_model(tmp_path / "tree", MODEL.replace("{body}", body).replace(*change, 1), inputs=inputs)


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
    lines = ("a = self.encoder(x)", "b = self.encoder(", "    x", ")", "return a * b + condition")
    body = "\n".join(f"        {line}" for line in lines)
    before = target(tmp_path, body, "(torch.randn(2, 16), torch.randn(2, 16))")
    site = only(remember.find(before.observe()))
    assert not site.detail["constant"] and len(site.detail["calls"]) == 1
    after = before.with_files(remember.rewrite(before.tree, site))
    assert after.text().count("remembered(") == 1 and same_results(before, after)


NOT_AGAIN = {
    "it is given something new": USES.format(call="self.encoder(x)"),
    "some of it is new": USES.format(call="self.encoder(condition + x.mean())"),
    "its result is changed": "        c = self.encoder(condition)\n        c += x\n        return self.out(c)",
}


@pytest.mark.parametrize("body", NOT_AGAIN.values(), ids=list(NOT_AGAIN))
def test_what_is_not_computed_again_is_no_site(tmp_path: Path, body: str) -> None:
    found = remember.find(target(tmp_path, body).observe())
    assert [site for site in found if site.module_class == "Model"] == []


def test_without_constants_nothing_stays_the_same(tmp_path: Path) -> None:
    plain = target(tmp_path, USES.format(call="self.encoder(condition)"), "(torch.randn(2, 16), torch.randn(2, 16))")
    assert remember.find(plain.observe()) == []


def test_one_that_draws_random_numbers_is_none(tmp_path: Path) -> None:
    body = USES.format(call="self.encoder(condition)")
    noisy = target(tmp_path, body, change=("torch.tanh(layer(x)) * scale", "torch.tanh(layer(x)) + torch.randn(16)"))
    assert [site for site in remember.find(noisy.observe()) if site.module_class == "Model"] == []


def test_a_call_by_another_name_is_left_alone(tmp_path: Path) -> None:
    before = target(tmp_path, "        read = self.encoder\n" + USES.format(call="read(condition)"))
    with pytest.raises(CannotRewrite, match="called by another name"):
        remember.rewrite(before.tree, only(remember.find(before.observe())))


def test_the_rest_follows_what_a_caller_changes(tmp_path: Path) -> None:
    before = target(tmp_path, USES.format(call="self.encoder(condition)"))
    after = before.with_files(remember.rewrite(before.tree, only(remember.find(before.observe()))))
    with before.built() as (old, draw), torch.no_grad():
        state: dict[str, Any] = {name: value.clone() for name, value in old.state_dict().items()}
        x, condition = draw(3)
    with after.built() as (new, _), torch.no_grad():
        new.load_state_dict(state)
        for _ in range(2):
            torch.testing.assert_close(new(x, condition), old(x, condition))
        condition.mul_(2.0)
        torch.testing.assert_close(new(x, condition), old(x, condition))
        for model in (old, new):
            model.encoder.layers[0].bias.add_(1.0)
        torch.testing.assert_close(new(x, condition), old(x, condition))
