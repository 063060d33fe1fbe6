"""Padding is left out where the callable gives the same without it, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.observed import Target, only, rewritten, same_results
from tools.rewrite import CannotRewrite, model_class, padding

POOLED = "return (x * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)"
INPUTS = """(torch.randint(50, (3, 64)), (torch.arange(64) < torch.tensor([[9], [20], [3]])).long())"""


def target(tree: Path, end: str = POOLED, inputs: str = INPUTS) -> Target:
    """Means over words."""
    body = f"x = torch.tanh(self.layer(self.words(words)))\n{end}"
    init = "self.words, self.layer = nn.Embedding(50, 16), nn.Linear(16, 16)"
    return Target.of_forward(tree, body, init, arguments="words, mask", inputs=inputs)


def test_a_mask_that_pads_is_found_and_followed(tmp_path: Path) -> None:
    before = target(tmp_path)
    site = only(padding.find(before.observe()))
    assert (site.module_class, site.detail["mask"], site.detail["names"]) == ("Model", 1, [0, 1])
    after = before.with_files(padding.rewrite(before.tree, site))
    assert '@without_padding("words", "mask", mask="mask")\nclass Model' in after.text()
    assert same_results(before, after)
    with pytest.raises(CannotRewrite, match="already"):
        padding.rewrite(after.tree, site)


@pytest.mark.parametrize("steps", [("padding", "capture"), ("capture", "padding")])
def test_what_is_compiled_or_recorded_of_its_calls_is_spared_it(tmp_path: Path, steps: tuple[str, ...]) -> None:
    changed = before = target(tmp_path)
    for step in steps:
        seen = changed.observe()
        in_target = [frame for read in seen.host_reads for frame in read.frames if not frame.third_party]
        assert in_target == [] and [found.name for found in seen.callable.outermost] == ["Model"]
        if step == "padding":
            files = padding.rewrite(changed.tree, only(padding.find(seen)))
        else:
            files = model_class.capture(changed.tree, only(model_class.find(seen)))
        changed = changed.with_files(files)
    assert '@without_padding("words", "mask", mask="mask")\n@graphed\nclass Model' in changed.text()
    assert same_results(before, changed)


def test_a_mask_of_the_other_sense_is_one_too(tmp_path: Path) -> None:
    inputs = "(torch.randint(50, (3, 64)), torch.arange(64) >= torch.tensor([[9], [20], [3]]))"
    end = "keep = (~mask)[:, :, None].float()\nreturn (x * keep).sum(1) / keep.sum(1)"
    before = target(tmp_path, end, inputs)
    after = rewritten(before, padding)
    assert '@without_padding("words", "mask", mask="mask", padding=True)\n' in after.text()
    assert same_results(before, after)


def test_a_mask_that_is_added_is_one_too_where_it_is_finite(tmp_path: Path) -> None:
    end = "keep = mask.exp()[:, :, None]\nreturn (x * keep).sum(1) / keep.sum(1)"
    before = target(tmp_path / "finite", end, INPUTS.replace(".long())", ".float().sub(1).mul(1e9))"))
    after = rewritten(before, padding)
    assert 'mask="mask", padding=-1000000000.0)\n' in after.text() and same_results(before, after)
    infinite = target(tmp_path / "infinite", end, INPUTS.replace(".long())", ".float().log())"))
    assert padding.find(infinite.observe()) == []


NONE = {
    "the result has a row for each position": "return x * mask[:, :, None]",
    "positions count that the mask excludes": "return x.mean(1) + mask.sum(1, keepdim=True)",
    "it needs the width": "return (x * mask[:, :, None]).sum(1) / torch.ones(64).sum() + x[:, 63]",
}


@pytest.mark.parametrize("end", NONE.values(), ids=list(NONE))
def test_where_padding_counts_it_stays(tmp_path: Path, end: str) -> None:
    assert padding.find(target(tmp_path, end).observe()) == []


@pytest.mark.parametrize("mask", ["torch.ones(3, 64).long()", "(torch.rand(3, 64) > 0.5).long()", "torch.rand(3, 64)"])
def test_a_mask_that_does_not_pad_is_none(tmp_path: Path, mask: str) -> None:
    inputs = f"(torch.randint(50, (3, 64)), {mask})".replace(
        "> 0.5)", "> 0.5).index_fill_(1, torch.tensor([63]), True)"
    )
    assert padding.find(target(tmp_path, inputs=inputs).observe()) == []


def test_arguments_by_name_are_taken_by_name(tmp_path: Path) -> None:
    inputs = INPUTS.replace("(torch.randint(50, (3, 64)), (", "dict(words=torch.randint(50, (3, 64)), mask=(")
    site = only(padding.find(target(tmp_path, inputs=inputs).observe()))
    assert (site.detail["mask"], site.detail["names"]) == ("mask", ["words", "mask"])


def test_arguments_that_forward_does_not_name_are_left_alone(tmp_path: Path) -> None:
    before = target(tmp_path)
    site = only(padding.find(before.observe()))
    unnamed = site.model_copy(update={"detail": {**site.detail, "names": ["tokens", "mask"]}})
    with pytest.raises(CannotRewrite, match="argument tokens is not named by forward"):
        padding.rewrite(before.tree, unnamed)
