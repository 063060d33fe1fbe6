"""A sum with its norm, rotary embeddings and the top of a softmax are found by what they compute."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.observed import Target, cases, only, rewritten, same_results
from tools.candidate import Site
from tools.rewrite import CannotRewrite, fused_kernels, route_attention

SCALE = """
class Scale(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(size))

    def forward(self, h):
        return self.gain * h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)
"""
INIT = """self.a, self.b, self.gate = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 12)
self.scale, self.norm = Scale(16), nn.LayerNorm(16)"""
SUMS = """
- x = x + self.a(x); return x + self.b(self.scale(x))
  => fused = add_rms_norm(x, right, self.scale.gain, 1e-06, only="float32")
- residual = x; x = self.a(x); # kept; x = residual + x; residual = x; x = self.scale(x); return residual + self.b(x)
  => fused = add_rms_norm(residual, x, self.scale.gain, 1e-06, only="float32")
- h = self.a(x); return self.b(self.norm(h + x))
  => fused = add_layer_norm(h, x, self.norm.weight, self.norm.bias, self.norm.eps, only="float32")
- fused = self.norm(self.a(x) + self.b(x)); return fused * 2
  => fused_ = add_layer_norm(left, right, self.norm.weight, self.norm.bias, self.norm.eps, only="float32")
"""
OTHER_SUMS = """
- x = x + self.a(x); x[:, 0] = 0.0; return self.scale(x)
- x += self.a(x); return self.scale(x)
- x, y = x + self.a(x), 1; return self.scale(x) * y
- return self.scale((x + self.a(x)).relu())
- return self.scale(x + 1.0)
- while self.scale(x + self.a(x)).sum() > 1e9:
      x = x * 0.5
  return x
"""
HALVES = """
def turn(x):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((-b, a), dim=-1)

def spin(q, k, cos, sin):
    q = (q * cos) + (turn(q) * sin)
    return q, cos * k + turn(k) * sin
"""
SPIN = """angles = torch.outer(torch.arange(6.0), torch.arange(16.0) / 16)
q, k = spin(self.a(x), self.b(x), angles.cos(), angles.sin())
return q * k"""
TOPS = """
- scores = torch.softmax(self.gate(x).float(), dim=-1); weights, ids = torch.topk(scores, 3, dim=-1)  => logits, 3)
- scores = self.gate(x).softmax(-1); weights, ids = scores.topk(3)  => logits, 3)
- scores = F.softmax(self.gate(x), dim=-1); weights, ids = torch.topk(scores, k=3, dim=-1)  => logits, 3)
- scores = F.softmax(self.gate(x).bfloat16(), dim=-1, dtype=torch.float); weights, ids = torch.topk(scores, 3, dim=-1)
  => logits, 3, dtype=torch.float)
"""
OTHER_TOPS = """
- scores = self.gate(x).softmax(-1); weights, ids = torch.topk(scores, 3); return scores.sum() * ids
- scores = self.gate(x).softmax(-1); weights, ids = torch.topk(scores, 3, largest=False); return ids
- scores = self.gate(x).softmax(-1); return torch.topk(scores, 3).values
- scores = self.gate(x).softmax(1); weights, ids = torch.topk(scores, 3); return weights
- wide = x.dtype; scores = self.gate(x).softmax(-1, dtype=wide); weights, ids = torch.topk(scores, 3); return weights
"""


def target(tmp_path: Path, body: str, before: str = "", init: str = INIT) -> Target:
    place, inputs = tmp_path / "tree", "(torch.randn(2, 6, 16),)"
    return Target.of_forward(place, body, init, before=f"{SCALE}\n{before}", inputs=inputs)


def sites(found: Target, kind: str) -> list[Site]:
    return [site for site in fused_kernels.find(found.observe()) if site.kind == kind]


def refused(found: Target, kind: str) -> bool:
    for site in sites(found, kind):
        with pytest.raises(CannotRewrite):
            fused_kernels.rewrite(found.tree, site)
    return True


@pytest.mark.parametrize(("body", "wanted"), cases(SUMS))
def test_a_sum_and_its_norm_become_one_call(tmp_path: Path, body: str, wanted: str) -> None:
    before = target(tmp_path, body)
    kind = "add_rms" if "rms" in wanted else "add_layer"
    site = only(sites(before, kind))
    assert (site.module_class, site.detail["attribute"]) == ("Model", "scale" if kind == "add_rms" else "norm")
    after = before.with_files(fused_kernels.rewrite(before.tree, site))
    assert wanted in after.text() and ("# kept" in body) == ("# kept" in after.text())
    assert same_results(before, after), "off the GPU the function's own operations run"


@pytest.mark.parametrize("body", cases(OTHER_SUMS))
def test_a_sum_that_is_anything_else_stays(tmp_path: Path, body: str) -> None:
    assert refused(target(tmp_path, body), "add_rms")


def test_rotary_embeddings_of_queries_and_keys_become_one_call_each(tmp_path: Path) -> None:
    before = target(tmp_path, SPIN, HALVES)
    site = only(sites(before, "rotary"))
    assert (site.detail["function"], site.detail["count"], len(site.detail["lines"])) == ("spin", 2, 2)
    after = before.with_files(fused_kernels.rewrite(before.tree, site))
    plain = "(q * cos) + (turn(q) * sin)"
    assert f"q = (fused if (fused := rotary(q, cos, sin)) is not None else {plain})" in after.text()
    assert "(fused := rotary(k, cos, sin)) is not None else cos * k + turn(k) * sin" in after.text()
    assert same_results(before, after)


@pytest.mark.parametrize("half", ["torch.cat((b, a), dim=-1)", "torch.cat((a, -b), dim=-1)"])
def test_what_turns_otherwise_is_no_rotary_embedding(tmp_path: Path, half: str) -> None:
    assert sites(target(tmp_path, SPIN, HALVES.replace("torch.cat((-b, a), dim=-1)", half)), "rotary") == []


@pytest.mark.parametrize(("body", "wanted"), cases(TOPS))
def test_the_top_of_a_softmax_becomes_one_call(tmp_path: Path, body: str, wanted: str) -> None:
    before = target(tmp_path, f"{body}\nreturn weights * ids")
    after = rewritten(before, fused_kernels, kind="softmax_topk")
    assert f"fused = softmax_topk({wanted}" in after.text() and "logits = self.gate(x)" in after.text()
    assert same_results(before, after)


@pytest.mark.parametrize("body", cases(OTHER_TOPS))
def test_a_softmax_that_is_used_otherwise_stays(tmp_path: Path, body: str) -> None:
    assert refused(target(tmp_path, body), "softmax_topk")


ATTENDS = """b, n, _ = x.shape
q, k, v = self.qkv(x).view(b, n, 3, 4, 4).permute(2, 0, 3, 1, 4)
y = {call}
return y.transpose(1, 2).reshape(b, n, 16)"""


@pytest.mark.parametrize(
    "call",
    [
        "F.scaled_dot_product_attention(q, k, v, is_causal=n > 1)",
        "torch.nn.functional.scaled_dot_product_attention(\n    q, k, v, attn_mask=None, scale=0.5)",
        "nn.functional.scaled_dot_product_attention(q, k, v, **{'scale': 0.5})",
    ],
)
def test_of_fused_attention_only_the_name_of_what_is_called_changes(tmp_path: Path, call: str) -> None:
    before = target(tmp_path, ATTENDS.replace("{call}", call), init="self.qkv = nn.Linear(16, 48)")
    after = rewritten(before, route_attention)
    assert f"routed_attention({call.partition('(')[2].partition(chr(10))[0]}" in after.text()
    assert "from ratchet_ops.routed_attention import routed_attention" in after.text()
    assert same_results(before, after)
    with pytest.raises(CannotRewrite, match="by its name"):
        rewritten(after, route_attention)


def test_fused_attention_by_another_name_is_left_alone(tmp_path: Path) -> None:
    body = ATTENDS.replace("{call}", "attend[0](q, k, v)")
    other = target(tmp_path, body, "attend = [F.scaled_dot_product_attention]", "self.qkv = nn.Linear(16, 48)")
    with pytest.raises(CannotRewrite, match="by its name"):
        rewritten(other, route_attention)
