"""A loop whose condition is a tensor of numbers is counted once; one that asks the data stays as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.observed import Target, cases, rewritten, same_results
from tools.rewrite import CannotRewrite, loops

INIT = "self.body, self.steps = nn.Linear(16, 16), 4\nself.denoise = lambda x, time: torch.tanh(self.body(x)) * time"
START = "dt = torch.tensor(-1.0 / self.steps, device=x.device)\ntime = torch.tensor(1.0, device=x.device)"
FLOW_MATCHING = f"""{START}
while time >= -dt / 2:
    x = x + dt * self.denoise(x, time.expand(1))
    time += dt
return x"""
COUNTED = f"""
- {FLOW_MATCHING}
- {START}
  while time > 0.1:
      time = time + dt
      x = self.denoise(x, time)
  return x * time
- {START}
  while time > 0:
      x = self.denoise(x, time)
      time.add_(dt)
  return x
- {START}
  done = torch.tensor(False)
  while not done:
      x = self.denoise(x, time)
      time = time + dt
      done = time <= 0
  return x
- {START}
  while time > 0.5:
      time = time + dt
  left = torch.tensor(2)
  while left > 0:
      x = x + time
      left = left - 1
  return x
- {START}
  u, done = 0.25, torch.tensor(False)
  while not done:
      time = time - u
      done, u = time <= 0, 0.5
  return x * time
- left = torch.tensor(x.shape[1] // 4, device=x.device)
  while left > 0:
      x = self.denoise(x, 0.5)
      left = left - 1
  return x
- if x.shape[0] > 1:
      dt = torch.tensor(-1.0 / self.steps)
      time = torch.tensor(1.0)
      while time > 0:
          x = self.denoise(x, time)
          time += dt
  return x
"""
DATA = f"""
- while x.abs().max() > 0.5:
      x = x / 2
  return x
- {START}
  while time > self.body.bias[0]:
      time = time + dt * 4
  return x * time
"""
COUNTS = f"{START}\nwhile time > 0:\n    time = time + dt"
BY_I = "i = 4\nstep = torch.tensor(-1 / i)\ni = 0\nwhile time > 0 and i < 10:\n    time = time + step\n    i += 1"
REFUSED = [
    ("+ dt", "+ dt\n    if x.shape[0] > 1:\n        continue\n    x = x + time", "may be left"),
    ("+ dt", "+ dt\n    if x.shape[0] > 1:\n        break", "may be left"),
    ("while time > 0:\n    time = time + dt", "x = x + 1 if time > 0 else x", "no loop asks"),
    ("    time =", "    if x.shape[0] > 1:\n        time =", "not understood"),
    ("while", "time = torch.tensor(float(len(self.children.__name__)))\nwhile", "depends on time"),
    ("while time > 0:\n    time", "for _ in range(1):\n    while time > 0:\n        time", "depends on time"),
    ("while time > 0:\n    time", "match 1:\n  case _:\n   while time > 0:\n    time", "not understood"),
    ("> 0", "> 0 and self.children", "depends on more"),
    ("while time > 0", "for bound in (0.1, 0.2):\n    pass\nwhile time > bound", "depends on bound"),
    ("while time > 0:\n    time = time + dt", BY_I, "not understood"),
    ("while", "other = time.view(1)\nother.add_(dt)\nwhile", "where other code"),
    ("while time > 0", "self.steps = 4\nwhile time > -1.0 / self.steps", "may be changed"),
    ("while time > 0:\n    time = time +", "self.time = time\nwhile time > 0:\n    time +=", "where other code"),
]


def target(tmp_path: Path, body: str) -> Target:
    body = body if "return" in body else f"{body}\nreturn x"
    return Target.of_forward(tmp_path / "tree", body, INIT, inputs="(torch.randn(2, 12, 16),)")


@pytest.mark.parametrize("body", cases(COUNTED))
def test_what_shapes_and_numbers_decide_is_counted_once(tmp_path: Path, body: str) -> None:
    before = after = target(tmp_path, body)
    for _ in range(body.count("while")):
        after = after.with_files(loops.rewrite(after.tree, loops.find(after.observe())[0]))
    assert "while" not in after.text().partition("class Model")[2]
    assert "in range(constant(_model_forward_steps" in after.text()
    assert same_results(before, after)
    seen = after.observe()
    assert not seen.host_reads and not loops.find(seen)


@pytest.mark.parametrize("body", cases(DATA))
def test_what_data_decides_is_not_found(tmp_path: Path, body: str) -> None:
    seen = target(tmp_path, body).observe()
    assert seen.host_reads and not loops.find(seen)


@pytest.mark.parametrize(("part", "other", "why"), REFUSED)
def test_what_is_not_understood_is_refused(tmp_path: Path, part: str, other: str, why: str) -> None:
    before = target(tmp_path, COUNTS.replace(part, other))
    found = loops.find(before.observe())
    assert found
    for site in found:
        with pytest.raises(CannotRewrite, match=why):
            loops.rewrite(before.tree, site)


def test_the_whole_compiles_into_one_graph(tmp_path: Path) -> None:
    after = rewritten(target(tmp_path, FLOW_MATCHING), loops)
    with after.built() as (model, draw):
        expected = model(*draw())
        compiled = torch.compile(model, backend="eager", fullgraph=True)
        torch.testing.assert_close(compiled(*draw()), expected)
