"""What is loaded before its key is known says nothing; with the key it is what was saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests import guest

seal: Any = guest.module("seal")
tensors: Any = guest.module("tensors")
KEY = -(1 << 62) + 11

MADE = {
    "large": torch.randn(3, (1 << 16) + 5),
    "bfloat16 of odd size": torch.randn(7, 3).to(torch.bfloat16),
    "bool": torch.arange(13) % 3 == 0,
    "complex": torch.randn(5, dtype=torch.complex64),
    "a number": torch.tensor(2.5),
    "empty": torch.empty(0, 4),
    "in another order": torch.randn(6, 4).t(),
    "integers": torch.arange(1000),
}


@pytest.mark.parametrize("name", MADE)
def test_what_is_sealed_is_opened_by_its_key_alone(name: str, tmp_path: Path) -> None:
    value, path = MADE[name], str(tmp_path / "in")
    before = value.clone()
    tensors.save_flat(path, *tensors.flatten((value,)), key=KEY)
    assert torch.equal(value, before), "what is saved stays as it is"
    loaded = tensors.Loaded(path)
    (sealed,) = loaded.tensors
    assert value.numel() == 0 or not torch.equal(sealed, value)
    (found,) = loaded.opened(KEY)[1]
    assert torch.equal(found, value) and found.dtype == value.dtype and found.stride() == value.stride()
    for other in (None, KEY + 1):
        with pytest.raises(ValueError):
            tensors.Loaded(path).opened(other)


def test_what_is_no_tensor_is_sealed_as_well(tmp_path: Path) -> None:
    path, given = str(tmp_path / "in"), {"length": 1234567, "name": "a telling name"}
    tensors.save_flat(path, *tensors.flatten(given), key=KEY)
    assert b"1234567" not in Path(path).read_bytes() and b"telling" not in Path(path).read_bytes()
    assert tensors.unflatten(*tensors.Loaded(path).opened(KEY)) == given


def test_no_two_tensors_and_no_two_words_are_turned_alike() -> None:
    zeros = [torch.zeros(4096, dtype=torch.int64) for _ in range(2)]
    for index, tensor in enumerate(zeros):
        seal.turn(tensor, KEY, index)
    assert torch.cat(zeros).unique().numel() == 8192


def test_a_worker_stages_what_it_was_given_sealed(made: Any, tmp_path: Path) -> None:
    worker = made("def inputs(seed):\n    return ()\n\ndef build():\n    return lambda x: x + 1\n")
    worker.op_build()
    path, given = str(tmp_path / "in"), torch.randn(4)
    tensors.save_flat(path, *tensors.flatten((given,)), key=KEY)
    worker.op_load(path)
    for shown in ({}, {"path": path, "how": "inplace"}):
        worker.op_stage(key=KEY, **shown)
        worker.op_call(1)
        assert torch.equal(worker.result[1][0], given + 1)
