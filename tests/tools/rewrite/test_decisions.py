"""What Python waits for although no data decides it is found by what was read, and moved where it can be kept."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest

from tests.observed import Target, only, same_results
from tools.observation import Observation
from tools.rewrite import CannotRewrite, decisions

BEFORE = """
SHIFT = 0

class Settings:
    def __init__(self):
        self.causal = True

def packed(positions):
    first = positions[:, :1] - 1
    steps = torch.diff(positions, prepend=first, dim=-1)
    if (steps == 1).all():
        return None
    return (steps != 1).cumsum(-1)

def make(x):
    return x

def make_mask(settings, x, mask, positions):
    if mask is not None:
        return mask.bool()
    together = packed(positions.expand(x.shape[0], -1))
    return None if together is None and settings.causal else together
"""
INIT = "self.settings, self.out, self.scale, self.causal = Settings(), nn.Linear(16, 16), 2, True"
BODY = """if positions is None:
    before = past.length() if past is not None else 0
    positions = torch.arange(x.shape[1], device=x.device) + before
    positions = positions.unsqueeze(0)
mask = make_mask(
    self.settings,
    x,
    mask, positions=positions,
)
x = x + positions.unsqueeze(-1)
"""
END = "return self.out(x) * self.scale if mask is None else self.out(x).masked_fill(mask[:, :1, None], 0.0)"


def changed(old: str, new: str, body: str = BODY) -> str:
    assert old in body
    return body.replace(old, new)


def target(tmp_path: Path, body: str = BODY) -> Target:
    body, arguments = f"# where each row is\n{body}{END}", "x, mask=None, positions=None, past=None"
    return Target.of_forward(tmp_path / "tree", body, INIT, before=BEFORE, arguments=arguments)


def decided(before: Target) -> Target:
    return before.with_files(decisions.rewrite(before.tree, outer(before.observe())))


def outer(seen: Observation) -> decisions.Site:
    return next(site for site in decisions.find(seen) if site.module_class == "Model")


def test_it_is_decided_once_for_each_shape(tmp_path: Path) -> None:
    before = target(tmp_path)
    seen = before.observe()
    inner = only([s for s in decisions.find(seen) if s.detail["function"] == "packed"])
    assert inner.module_class == ""
    with pytest.raises(CannotRewrite):  # it lacks what the outer one makes
        decisions.rewrite(before.tree, inner)
    site = outer(seen)
    assert decisions.outputs(before.tree, site) == ["mask", "positions"]
    after = before.with_files(decisions.rewrite(before.tree, site))
    call = "mask, positions = from_shapes(_model_forward_mask, positions, past, x, mask, self.settings)"
    assert f"        {call}\n" in after.text()
    assert "make_mask(\n        settings_,\n" in after.text() and after.text().count("# where each row is") == 1
    assert same_results(before, after)
    assert decisions.find(after.observe()) == []


def test_what_was_handed_in_is_used(tmp_path: Path) -> None:
    before = target(tmp_path)
    after = decided(before)
    entry = "{}, torch.tensor([[1, 0, 0, 1, 0], [0, 1, 0, 0, 0]]), torch.tensor([[0, 1, 0, 1, 2]]))"
    for each in (before, after):
        text = each.text("bench.py").replace("(torch.randn(2, 5, 16),)", entry.format("(torch.randn(2, 5, 16)"))
        (each.tree / "bench.py").write_text(text)
    assert "torch.tensor([[0, 1, 0" in after.text("bench.py") and same_results(before, after)


def test_what_is_made_before_for_something_else_stays_where_it_is(tmp_path: Path) -> None:
    before = target(tmp_path, "self.seen = torch.zeros(x.shape[:1])\n" + BODY)
    after = decided(before)
    assert "        self.seen = torch.zeros(x.shape[:1])\n        mask, positions = from_shapes(" in after.text()
    assert same_results(before, after)


def test_names_that_meet_in_the_new_function_stay_apart(tmp_path: Path) -> None:
    body = changed("before", "settings", changed("self.settings,", "self.settings, "))
    before = target(tmp_path, body)
    after = decided(before)
    assert "def _model_forward_mask(positions, past, x, mask, settings_):" in after.text()
    assert same_results(before, after)


TWICE = indent(changed("positions is None", "True"), "    ")
SOMETIMES = "if self.causal:\n    shift = 0\n" + changed("else 0", "else shift")
LEFT_ALONE = [
    (changed("positions = positions.unsqueeze(0)", "positions += 1"), "give a name"),
    (changed("    before =", "    self.seen = before ="), "give a name"),
    (changed(") + before", ") + len(repr(before)) * 0 + before"), "more than compute"),
    (changed("    x,\n", "    make(x),\n"), "more than compute"),
    (changed("= make_mask(", "= [make_mask, print(1)][0]("), "more than compute"),
    (changed("\nx = x +", "\nself.last = positions\nx = x +"), "changed in place"),
    (changed("\nx = x +", "\npositions += 1\nx = x +"), "changed in place"),
    (changed("self.settings,", "self,"), "more of self"),
    (f"for _ in range(2):\n{TWICE}", "loop"),
    (f"try:\n{TWICE}except ValueError:\n    pass\n", "handled"),
    (changed(") + before", ") + before + SHIFT"), "SHIFT may be changed"),
    (changed("else 0", "else self.scale"), "self.scale may not be there"),
    (SOMETIMES, "shift may not be there"),
    ("from math import tau\n" + changed("else 0", "else int(tau)"), "tau may"),
]


@pytest.mark.parametrize(("body", "reason"), LEFT_ALONE, ids=[reason for _, reason in LEFT_ALONE])
def test_what_may_do_more_is_left_alone(tmp_path: Path, body: str, reason: str) -> None:
    before = target(tmp_path, body)
    with pytest.raises(CannotRewrite, match=reason):
        decisions.rewrite(before.tree, outer(before.observe()))


def test_what_data_decides_is_no_site(tmp_path: Path) -> None:
    body = changed("\nmask =", "\npositions = positions + (x[:, :, 0] > 99).long()\nmask =")
    assert decisions.find(target(tmp_path, body).observe()) == []
