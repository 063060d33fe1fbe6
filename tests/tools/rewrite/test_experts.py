"""A loop over experts is recognised by what it does, in the ways people write it; any other stays as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.observed import Target, cases, only, same_results
from tools.rewrite import experts

BEFORE = """
class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))
"""
INIT = "self.router, self.experts, self.count = nn.Linear(16, 4), nn.ModuleList([Expert() for _ in range(4)]), 4"
BODY = """batch, tokens, size = x.shape
x = x.reshape(-1, size)
weights, chosen = torch.topk(self.router(x).softmax(-1), 2)
out = torch.zeros_like(x)
{loop}
return out.view(batch, tokens, size)"""
ALL_CALLED = """
- for i, expert in enumerate(self.experts):
      rows, nth = torch.where(chosen == i)
      out[rows] += weights[rows, nth, None] * expert(x[rows])
- mask = F.one_hot(chosen, num_classes=4).permute(2, 1, 0)
  for index in range(self.count):
      layer = self.experts[index]
      idx, top_x = torch.where(mask[index])
      state = x[None, top_x].reshape(-1, size)
      made = layer(state) * weights[top_x, idx, None]
      out.index_add_(0, top_x, made.to(x.dtype))
- # a condition that ends before the call
  for i, expert in enumerate(self.experts):
      rows, nth = torch.where(chosen == i)
      if len(rows):
          given = x[rows]
      given = x[rows]
      out[rows] += weights[rows, nth, None] * expert(given)
"""
SKIPPING = """
- for e in range(self.count):
      token_idx, k_idx = (chosen == e).nonzero(as_tuple=True)
      if token_idx.numel() == 0:
          continue
      y = self.experts[e](x[token_idx])
      y = y * weights[token_idx, k_idx].unsqueeze(-1)
      out.index_add_(0, token_idx, y.to(out.dtype))
- for i in range(len(self.experts)):
      hit = chosen == i
      if hit.any():
          rows, nth = torch.nonzero(hit, as_tuple=True)
          out.index_add_(0, rows, self.experts[i](x.index_select(0, rows)) * weights[rows, nth][:, None])
"""
WEIGHTED = "out[rows] += weights[rows, nth, None] * "
ADDS = f"{WEIGHTED}expert(x[rows])"
LOOP = f"for i, expert in enumerate(self.experts):\n    rows, nth = torch.where(chosen == i)\n    {ADDS}"
OTHERS = {
    "something else happens": (ADDS, f"self.seen = rows\n    {ADDS}"),
    "results are not weighted": ("weights[rows, nth, None] * ", ""),
    "weights of other rows": ("weights[rows, nth, None]", "weights[nth, rows % 2, None]"),
    "an expert is given more": ("expert(x[rows])", "expert(x[rows] + i)"),
    "what it found is used afterwards": (ADDS, f"{ADDS}\nout[rows] += 1.0"),
    "something is done for those without rows": (ADDS, f"if rows.numel() == 0:\n        out = out + 1.0\n    {ADDS}"),
    "those without rows are left out after they were called": (
        ADDS,
        f"made = expert(x[rows])\n    if len(rows) == 0:\n        continue\n    {WEIGHTED}made",
    ),
    "a loop over layers": (ADDS, "out = out + expert(x)"),
}
LOOPS = [(True, case) for case in cases(ALL_CALLED)] + [(False, case) for case in cases(SKIPPING)]


def target(tmp_path: Path, loop: str) -> Target:
    body, inputs = BODY.replace("{loop}", loop), "(torch.randn(2, 16, 16),)"
    return Target.of_forward(tmp_path / "tree", body, INIT, before=BEFORE, inputs=inputs)


def grouped(before: Target) -> Target:
    return before.with_files(experts.rewrite(before.tree, only(experts.find(before.tree, before.observe()))))


@pytest.mark.parametrize(("called", "loop"), [pytest.param(c, *p.values, id=p.id) for c, p in LOOPS])
def test_loops_over_experts_become_one_call(tmp_path: Path, loop: str, called: bool) -> None:
    before = target(tmp_path, loop)
    after = grouped(before)
    more = ", all_called=True" if called else ""
    assert f"out += grouped_experts(self.experts, x, chosen, weights{more})\n" in after.text()
    assert "for " not in after.text().partition("zeros_like")[2]
    assert same_results(before, after)
    assert experts.find(after.tree, after.observe()) == []


@pytest.mark.parametrize(("part", "other"), OTHERS.values(), ids=list(OTHERS))
def test_other_loops_stay_as_they_are(tmp_path: Path, part: str, other: str) -> None:
    before = target(tmp_path, LOOP.replace(part, other))
    assert experts.find(before.tree, before.observe()) == []
