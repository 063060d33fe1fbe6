"""Calls of fused attention, where they are written out, go to the kernel that is measured to be the fastest."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.observed import Target, only, same_results
from tools.rewrite import CannotRewrite, route_attention

MODEL = """
import torch
import torch.nn.functional as F
from torch import nn
{imports}

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, 4, 4).permute(2, 0, 3, 1, 4)
        y = {call}
        return y.transpose(1, 2).reshape(b, n, 16)
"""


def target(tmp_path: Path, call: str, imports: str = "") -> Target:
    model = MODEL.replace("{call}", call).replace("{imports}", imports)
    return Target.of_model(tmp_path / "tree", model, inputs="(torch.randn(2, 6, 16),)")


@pytest.mark.parametrize(
    "call",
    [
        "F.scaled_dot_product_attention(q, k, v, is_causal=n > 1)",
        "torch.nn.functional.scaled_dot_product_attention(\n            q, k, v, attn_mask=None, scale=0.5)",
        "nn.functional.scaled_dot_product_attention(q, k, v, **{'scale': 0.5})",
    ],
)
def test_only_the_name_of_what_is_called_changes(tmp_path: Path, call: str) -> None:
    before = target(tmp_path, call)
    site = only(route_attention.find(before.observe()))
    assert site.module_class == "Model"
    after = before.with_files(route_attention.rewrite(before.tree, site))
    assert f"routed_attention({call.partition('(')[2]}" in after.text()
    assert "from ratchet_ops.routed_attention import routed_attention" in after.text()
    assert same_results(before, after)
    with pytest.raises(CannotRewrite, match="by its name"):
        route_attention.rewrite(after.tree, only(route_attention.find(after.observe())))


def test_a_call_by_another_name_is_left_alone(tmp_path: Path) -> None:
    before = target(tmp_path, "attend[0](q, k, v)", "attend = [F.scaled_dot_product_attention]")
    site = only(route_attention.find(before.observe()))
    with pytest.raises(CannotRewrite, match="by its name"):
        route_attention.rewrite(before.tree, site)
