"""Heads are multiplied as they are, in eager code too, and stay repeated where somebody else reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.observed import Target, only, same_results
from tests.tools.rewrite.test_attention import GROUPED, fused, model
from tools.rewrite import CannotRewrite, repeat_kv


def ungrouped(target: Target) -> Target:
    return target.with_files(repeat_kv.rewrite(target.tree, only(repeat_kv.find(target.observe()))))


def test_repeated_heads_are_dropped(tmp_path: Path) -> None:
    before = model(tmp_path, GROUPED)
    after = ungrouped(before)
    assert "k = repeat_kv(k, 2)" not in after.text()
    assert "grouped_matmul(q, k.transpose(2, 3)) * self.scale" in after.text()
    assert same_results(before, after, {"t": 5}, {"t": 1})


def test_repeating_in_place_of_a_helper_is_seen_too(tmp_path: Path) -> None:
    body = GROUPED.replace("repeat_kv(k, 2)", "k.repeat_interleave(2, dim=1)")
    body = body.replace("repeat_kv(v, 2)", "v[:, :, None].expand(b, 2, 2, t, 4).reshape(b, 4, t, 4)")
    before = model(tmp_path, body)
    after = ungrouped(before)
    assert "repeat_interleave" not in after.text() and ".expand(" not in after.text().split("class Model")[1]
    assert same_results(before, after, {"t": 5})


def test_fused_attention_takes_over_from_there(tmp_path: Path) -> None:
    before = model(tmp_path, GROUPED)
    between = ungrouped(before)
    after = fused(between, "gqa")
    assert "enable_gqa=True" in after.text() and "grouped_matmul(q" not in after.text()
    assert same_results(before, after, {"t": 5})


def test_heads_that_are_read_elsewhere_stay_repeated(tmp_path: Path) -> None:
    target = model(tmp_path, GROUPED + "\n        y = y + k.mean()")
    with pytest.raises(CannotRewrite, match="elsewhere"):
        ungrouped(target)


def test_heads_that_are_tiled_are_not_taken_for_repeated(tmp_path: Path) -> None:
    """`repeat` puts the heads in another order than a fused call would."""
    body = GROUPED.replace("repeat_kv(k, 2)", "k.repeat(1, 2, 1, 1)").replace("repeat_kv(v, 2)", "v.repeat(1, 2, 1, 1)")
    assert repeat_kv.find(model(tmp_path, body).observe()) == []
