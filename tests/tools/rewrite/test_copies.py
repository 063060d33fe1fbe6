"""Copies and zeros that nothing needs go; those that matter stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.observed import Target, cases, same_results
from tools.rewrite import CannotRewrite, copies, zeros

NEEDLESS = """
- old = x.clone(); return self.layer(x) + old  => old = x
- return self.layer(torch.clone(x * 2))  => self.layer(x * 2)
- return self.layer((x + 1).contiguous())  => self.layer((x + 1))
- y = torch.zeros(x.shape, dtype=x.dtype); y.copy_(x)  => torch.empty(x.shape, dtype=x.dtype)
- y = torch.zeros_like(x); z = x * 2; y[:] = z  => torch.empty_like(x)
- y = x.new_zeros(x.shape); y[...] = self.layer(x)  => x.new_empty(x.shape)
- if x.dim():
      y = torch.zeros_like(x)
      y[:, :] = x
  => torch.empty_like(x)
"""
NEEDED = """
- old = x.clone(); old += 1; return self.layer(x) + old
- old = x.clone(); x[:, 0] = 0; return self.layer(x) + old
- return x.clone()
- old = x.clone(); return old
- old = x.clone(); x = torch.relu(x); return old.transpose(0, 1)
- old = x.clone(); part = old[:1]; part += 1; return self.layer(x) + old
- old = x.clone(); x = nn.functional.relu(x, inplace=True); return self.layer(x) + old
- return self.layer(x.transpose(0, 1).contiguous().view(-1, 16))
- return self.layer(x.double().float())
- y = torch.zeros_like(x); y[:, 1:] = x[:, 1:]
- y = torch.zeros_like(x); y[:, :5] = x  # everything, for this shape
- y = torch.zeros_like(x); y += x
- y = torch.zeros_like(x); y[:] = x + y
- y = torch.zeros_like(x); z = y.view(-1); z[:] = x.view(-1)
- y = torch.zeros_like(x)
  if x.dim():
      y[:] = x
- y = torch.zeros_like(x)
- y = torch.zeros_like(x); y[x > 0] = 1.0
- y = torch.ones_like(x); y[:] = x
- for i in range(2):
      y = torch.zeros_like(x)
      if i:
          y[:] = x
"""


def dropped(tmp_path: Path, body: str) -> tuple[Target, Target]:
    before = Target.of_forward(tmp_path / "tree", body if "return" in body else f"{body}\nreturn self.layer(y)")
    rewriter = zeros if "y =" in body else copies
    for site in rewriter.find(before.observe())[:1]:
        return before, before.with_files(rewriter.rewrite(before.tree, site))
    raise CannotRewrite("nothing was found")


@pytest.mark.parametrize(("body", "wanted"), cases(NEEDLESS))
def test_what_nothing_needs_goes(tmp_path: Path, body: str, wanted: str) -> None:
    before, after = dropped(tmp_path, body)
    assert wanted in after.text()
    assert same_results(before, after)


@pytest.mark.parametrize("body", cases(NEEDED))
def test_what_matters_stays(tmp_path: Path, body: str) -> None:
    with pytest.raises(CannotRewrite):
        dropped(tmp_path, body)
