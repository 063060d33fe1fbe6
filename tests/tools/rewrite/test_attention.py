"""Attention by hand is recognised in its usual spellings, computes the same when fused, and is left alone in doubt."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.observed import Target, cases, only, rewritten, same_results
from tools.rewrite import CannotRewrite, attention, repeat_kv

BEFORE = """
def repeat_kv(x, n):
    b, h, t, d = x.shape
    return x[:, :, None].expand(b, h, n, t, d).reshape(b, h * n, t, d)

def causal_mask(n, device):
    m = torch.ones(n, n, device=device)
    return m.tril()
"""
INIT = """
self.heads, self.head_dim, self.scale = 4, 4, 0.5
self.attend = nn.Softmax(dim = -1)
self.across = nn.Softmax(dim=2)
self.qkv, self.out, self.drop = nn.Linear(16, 48), nn.Linear(16, 16), nn.Dropout(0.1)
self.register_buffer("bias", torch.tril(torch.ones(32, 32)).view(1, 1, 32, 32))
"""
BODY = """b, t, _ = x.shape
q, k, v = self.qkv(x).chunk(3, dim=-1)
q = q.view(b, t, self.heads, self.head_dim).transpose(1, 2)
k = k.view(b, t, self.heads, self.head_dim).transpose(1, 2)
v = v.view(b, t, self.heads, self.head_dim).transpose(1, 2)
{body}
return self.out(y.transpose(1, 2).reshape(b, t, -1))"""
SPELLINGS = """
- att = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(self.head_dim)
  att = F.softmax(att, dim=-1)
  y = torch.matmul(att, v)
  => scaled_dot_product_attention(q, k, v, scale=1.0 / math.sqrt(self.head_dim))
- # causal by addition
  att = (q @ k.transpose(-2, -1)) * self.scale
  mask = torch.full((t, t), float("-inf"), device=x.device).triu(1)
  att = att + mask[None, None]
  att = att.softmax(dim=-1)
  y = att @ v
  => is_causal=t > 1, scale=self.scale
- # causal by fill
  att = q @ k.mT / math.sqrt(k.size(-1))
  att = att.masked_fill(torch.tril(torch.ones(t, t, device=x.device)) == 0, float("-inf"))
  y = self.drop(F.softmax(att, -1)) @ v
  => is_causal=t > 1
- # causal in place
  scores = torch.matmul(q, k.transpose(2, 3))
  scores *= self.scale
  hidden = torch.triu(torch.ones(t, t, dtype=torch.bool, device=x.device), diagonal=1)
  scores.masked_fill_(hidden, float("-inf"))
  y = torch.matmul(torch.softmax(scores, dim=-1), v)
  => is_causal=t > 1
- # causal by where
  seen = torch.ones((t, t), dtype=torch.bool, device=x.device).tril()
  scores = torch.where(seen, torch.matmul(q, k.transpose(2, 3)) * self.scale, float("-inf"))
  y = torch.matmul(F.softmax(scores.float(), dim=-1).type_as(q), v)
  => is_causal=t > 1
- # causal by a function, whose result is not built any more
  seen = causal_mask(t, x.device)
  att = (q @ k.transpose(-2, -1)) * self.scale
  att = att.masked_fill(seen == 0, -1e9)
  y = F.softmax(att, dim=-1) @ v
  => is_causal=t > 1
- # by a module
  att = self.attend(torch.matmul(q, k.transpose(-1, -2)) * self.scale)
  y = torch.matmul(self.drop(att), v)
  => scaled_dot_product_attention(q, k, v, dropout_p=self.drop.p if self.drop.training else 0.0, scale=self.scale)
- # a mask kept in a buffer
  att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
  att = att.masked_fill(self.bias[:, :, :t, :t] == 0, float("-inf"))
  y = F.softmax(att, dim=-1) @ v
  => attn_mask=self.bias[:, :, :t, :t] != 0
- # a mask that may be there
  mask = self.bias[:, :, :t, :t].expand(b, 1, t, t) if mask is None else mask
  scores = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(self.head_dim)
  if mask is not None:
      scores = scores + mask
  y = torch.matmul(F.softmax(scores, dim=-1), v)
  => attn_mask=mask
- q = q * self.scale
  y = torch.matmul(torch.matmul(q, k.transpose(2, 3)).softmax(-1), v)
  => scale=1.0
- att = torch.einsum("bhqd,bhkd->bhqk", q, k) / self.head_dim ** 0.5
  y = torch.einsum("bhqk,bhkd->bhqd", att.softmax(dim=-1), v)
  => scaled_dot_product_attention(q, k, v, scale=1.0 / (self.head_dim ** 0.5))
- k = k.permute(0, 1, 3, 2)
  y = torch.softmax(torch.matmul(q, k) * self.scale, dim=-1) @ v
  => k.transpose(-2, -1)
"""
ATTENTION = """att = (q @ k.transpose(-2, -1)) * self.scale
att = F.softmax(att, dim=-1)
y = att @ v"""
MASKED_TWICE = 'att = att + torch.full((t, t), float("-inf")).triu(1)\natt = att + torch.randn(b, 1, t, t)\n'
LEFT_ALONE = {
    "the mask is scaled too": ("k.transpose(-2, -1)", "k.transpose(-2, -1) + torch.zeros(t, t)"),
    "the probabilities are used again": ("att @ v", "att @ v + att.sum() * 0"),
    "softmax over the queries": ("dim=-1", "dim=2"),
    "softmax over the queries by a module": ("F.softmax(att, dim=-1)", "self.across(att)"),
    "the scale is learned": ("self.scale", "self.out.bias.mean()"),
    "the queries change in between": ("y =", "q = q + 1\ny ="),
    "masked twice": ("att = F", f"{MASKED_TWICE}att = F"),
}
GROUPED = """k, v = k[:, :2], v[:, :2]
k = repeat_kv(k, 2)
v = repeat_kv(v, 2)
scores = torch.matmul(q, k.transpose(2, 3)) * self.scale
y = torch.matmul(F.softmax(scores, dim=-1), v)"""
ADDED = """scores = torch.matmul(q, k.transpose(2, 3)) * self.scale
hidden = torch.full((t, t), float("-inf")).triu(1)
scores = scores + hidden
y = torch.matmul(F.softmax(scores, dim=-1), v)"""


def model(tmp_path: Path, body: str, inputs: str = '(torch.randn(2, shape.get("t", 5), 16),)') -> Target:
    body = BODY.replace("{body}", body)
    place = tmp_path / "tree"
    return Target.of_forward(place, body, INIT.strip(), before=BEFORE, arguments="x, mask=None", inputs=inputs)


def fused(target: Target, variant: str = "") -> Target:
    site = only(attention.find(target.observe({"t": 5})))
    return target.with_files(attention.rewrite(target.tree, site, variant or attention.variants(target.tree, site)[0]))


@pytest.mark.parametrize(("body", "wanted"), cases(SPELLINGS))
def test_a_spelling_is_recognised_and_computes_the_same(tmp_path: Path, body: str, wanted: str) -> None:
    before = model(tmp_path, body)
    after = fused(before)
    assert wanted in after.text()
    assert "softmax" not in after.text() and "seen = causal_mask" not in after.text()
    assert same_results(before, after, {"t": 5}, {"t": 1}, {"t": 17})


@pytest.mark.parametrize(("part", "other"), LEFT_ALONE.values(), ids=list(LEFT_ALONE))
def test_what_a_fused_call_does_not_compute_is_left_alone(tmp_path: Path, part: str, other: str) -> None:
    target = model(tmp_path, ATTENTION.replace(part, other))
    for site in attention.find(target.observe()):
        with pytest.raises(CannotRewrite):
            attention.rewrite(target.tree, site, "plain")


@pytest.mark.parametrize("drops", [True, False])
def test_dropout_is_that_of_its_own_module(tmp_path: Path, drops: bool) -> None:
    body = "att = q @ k.mT / math.sqrt(k.size(-1))\ny = self.drop(F.softmax(att, -1)) @ v"
    with fused(model(tmp_path, body)).built() as (built, draw):
        built.train(not drops)
        built.drop.train(drops)
        (x,) = draw()
        assert built(x).equal(built(x)) != drops


@pytest.mark.parametrize(("variant", "repeats"), [("gqa", 1), ("repeated", 3)])
def test_shared_heads_are_repeated_or_not_by_variant(tmp_path: Path, variant: str, repeats: int) -> None:
    before = model(tmp_path, GROUPED)
    after = fused(before, variant)
    assert after.text().count("repeat_kv(") == repeats
    assert ("enable_gqa=True" in after.text()) == (variant == "gqa")
    assert same_results(before, after, {"t": 5}, {"t": 8})


def test_one_row_before_a_longer_past_hides_nothing(tmp_path: Path) -> None:
    """A (1, 1) causal mask hides nothing; `is_causal` would show the first key alone."""
    past = "torch.cat([torch.ones(b, self.heads, 3, self.head_dim), {0}], dim=2)"
    body = f"k = {past.format('k')}\nv = {past.format('v')}\n{ADDED}"
    before = model(tmp_path, body, "(torch.randn(2, 1, 16),)")
    assert same_results(before, fused(before))


def test_a_mask_that_is_not_causal_is_kept_as_it_is(tmp_path: Path) -> None:
    before = model(tmp_path, ADDED.replace(".triu(1)", ".triu(2)"))
    after = fused(before)
    assert "is_causal" not in after.text()
    assert same_results(before, after, {"t": 5})


# -- heads that serve several query heads


def test_repeated_heads_are_dropped_and_fused_attention_takes_over_from_there(tmp_path: Path) -> None:
    before = model(tmp_path, GROUPED)
    after = rewritten(before, repeat_kv)
    assert "k = repeat_kv(k, 2)" not in after.text()
    assert "grouped_matmul(q, k.transpose(2, 3)) * self.scale" in after.text()
    assert same_results(before, after, {"t": 5}, {"t": 1})
    last = fused(after, "gqa")
    assert "enable_gqa=True" in last.text() and "grouped_matmul(q" not in last.text()
    assert same_results(before, last, {"t": 5})


def test_repeating_without_a_helper_is_seen_too(tmp_path: Path) -> None:
    body = GROUPED.replace("repeat_kv(k, 2)", "k.repeat_interleave(2, dim=1)")
    body = body.replace("repeat_kv(v, 2)", "v[:, :, None].expand(b, 2, 2, t, 4).reshape(b, 4, t, 4)")
    before = model(tmp_path, body)
    after = rewritten(before, repeat_kv)
    assert "repeat_interleave" not in after.text() and ".expand(" not in after.text().split("class Model")[1]
    assert same_results(before, after, {"t": 5})


def test_heads_that_are_read_elsewhere_stay_repeated(tmp_path: Path) -> None:
    with pytest.raises(CannotRewrite, match="elsewhere"):
        rewritten(model(tmp_path, f"{GROUPED}\ny = y + k.mean()"), repeat_kv)


def test_heads_that_are_tiled_are_not_taken_for_repeated(tmp_path: Path) -> None:
    """`repeat` puts the heads in another order than a fused call would."""
    body = GROUPED.replace("repeat_kv(k, 2)", "k.repeat(1, 2, 1, 1)").replace("repeat_kv(v, 2)", "v.repeat(1, 2, 1, 1)")
    assert repeat_kv.find(model(tmp_path, body).observe()) == []
