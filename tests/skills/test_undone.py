"""What a trial writes is undone, whether torch counts it or not."""

from __future__ import annotations

import pytest
import torch

from tests import assets

undone = assets.load("amd-kernel-optimization", "undone")


def test_writes_of_a_trial_are_undone() -> None:
    kept = [torch.arange(6.0).view(2, 3).t(), torch.ones(2, dtype=torch.int32)]
    before = [each.clone() for each in kept]
    written: list[torch.Tensor] = []
    with pytest.raises(RuntimeError), undone.undone(kept, written) as undo:
        kept[0] += 1
        undo()
        assert all(map(torch.equal, kept, before)) and len(written) == 1 and written[0] is kept[0]
        kept[0].zero_()
        kept[1].numpy()[:] = 7  # torch counts no such writes
        raise RuntimeError
    assert all(map(torch.equal, kept, before)) and [*map(id, written)] == [*map(id, kept)]


def test_memory_is_shared_by_views_and_not_by_values() -> None:
    whole, other = torch.zeros(4), torch.zeros(4)
    assert undone.are_in_one_memory([1, whole[2:]], [whole]) and not undone.are_in_one_memory([other, None], [whole])
    assert undone.is_in(whole, [other, whole]) and not undone.is_in(whole[:], [other, whole])
