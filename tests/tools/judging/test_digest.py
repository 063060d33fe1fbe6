"""The digest: host and guest agree on every dtype and size, every bit counts, and no output can be bent to fit one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests import guest
from tools.judging import digest as host
from tools.judging import tensors
from tools.judging.tensors import Leaf

KEY = -1234567890123456789
KEYS = (0, 1, -1, (1 << 63) - 1, -(1 << 63) + 1)


def raw(value: Any) -> Any:
    return np.frombuffer(value.contiguous().flatten().view(torch.uint8).numpy().tobytes(), np.uint8)


def on_host(values: list[Any], key: int = KEY, device: str = "cpu") -> str:
    return host.digest([Leaf("uint8", (), "Tensor", device, raw(v.cpu())) for v in values], key)


def on_guest(values: list[Any], key: int = KEY) -> str:
    digest = guest.module("digest").Digest(values, key)
    guest.module("on_device").synchronize()
    return str(digest.digits())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool, torch.uint8])
@pytest.mark.parametrize("shape", [(), (1,), (7,), (33, 5), (256,), (3, 0, 2), (129, 257)])
def test_host_and_guest_agree(dtype: Any, shape: tuple[int, ...]) -> None:
    value = (torch.rand(shape) * 5).to(dtype)
    assert on_guest([value]) == on_host([value])
    # the sums that are made on a device, made here by torch operations
    assert guest.module("digest")._sums(value, KEY).tolist() == host._sums(raw(value), KEY).tolist()


def test_they_agree_on_several_outputs_views_and_extreme_keys() -> None:
    conjugate = torch.randn(4, dtype=torch.complex64).conj()
    values = [torch.randn(5, 6).t(), torch.randn(40)[3:21], torch.arange(9), conjugate]
    resolved = [value.resolve_conj() for value in values]
    for key in KEYS:
        assert on_guest(values, key) == on_host(resolved, key)
        assert guest.module("digest")._sums(values[0], key).tolist() == host._sums(raw(values[0]), key).tolist()


@pytest.mark.gpu
@pytest.mark.parametrize("count", [1, 2047, 2048, 2049, 4096, 4097, 16385, 100_003])
def test_they_agree_on_what_lies_on_a_device(count: int) -> None:
    values = [torch.randn(count, device="cuda"), torch.randint(9, (count,), device="cuda")]
    values += [values[0][: count // 2 + 1], torch.randn(3, count, dtype=torch.complex64, device="cuda").t().conj()]
    for key in KEYS:
        assert on_guest(values, key) == on_host([value.resolve_conj() for value in values], key, "cuda")


@pytest.mark.guard("a digest met afterwards")
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_bit_position_the_key_and_the_order_count(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    value, a, b = torch.zeros(1000, dtype=torch.uint8), torch.randn(64), torch.randn(64)
    changed = [value.clone() for _ in range(0, 1000, 37)]
    for tensor, position in zip(changed, range(0, 1000, 37), strict=True):
        tensor[position] = 1 << (position % 8)
    orders = [[a, b], [b, a], [torch.cat([a, b])], [torch.cat([b, a])]]
    outputs = [[value], [value, value[:0]], *([each] for each in changed), *orders]
    seen = [*(on_host(each, KEY, device) for each in outputs), on_host([value], KEY + 1, device)]
    assert len({*seen}) == len(outputs) + 1
    monkeypatch.setattr(host, "CHUNK_LANES", 64)
    assert [on_host(each, KEY, device) for each in outputs] == seen[:-1], "also in parts"


@pytest.mark.guard("a digest met afterwards")
def test_it_is_not_linear_so_that_it_needs_the_outputs_themselves() -> None:
    """A linear digest of x @ w is a cheap product with w's own digest; then no output would have to be computed."""
    sums = guest.module("digest")._sums
    x, y = torch.randint(1 << 30, (64,)), torch.randint(1 << 30, (64,))
    assert not torch.equal(sums(x + y, 5), sums(x, 5) + sums(y, 5))


@pytest.mark.guard("a digest met afterwards")
def test_one_low_bit_changes_every_sum_so_that_no_output_can_be_bent_sum_by_sum() -> None:
    """Sums that can be met one after the other fall to a birthday search over the low bits of right outputs."""
    value = torch.randn(32, 256)
    before = host._sums(raw(value), KEY)
    for lane in (0, 31, 32, 1000, 4095):
        bent = raw(value).copy()
        bent[8 * lane] ^= 1
        assert (host._sums(bent, KEY) != before).all()


def test_a_saved_file_has_the_digest_of_the_tensors(tmp_path: Path) -> None:
    values = [torch.randn(3, 5).to(torch.bfloat16), torch.randn(4, 4).t()]
    guest.module("tensors").save(str(tmp_path / "x"), values)
    assert host.digest(tensors.read(tmp_path / "x").leaves, KEY) == on_guest(values)
