"""The fastest right kernel is taken for each shape of attention. aiter is a stand-in here, and times are made up."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.nn import functional as F


@pytest.fixture
def aiter(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """What the asset uses of aiter: attention over (b, n, h, d), causal up to the last key."""
    package = ModuleType("aiter")

    def flash_attn_func(q: Any, k: Any, v: Any, softmax_scale: Any = None, causal: bool = False) -> Any:
        q, k, v = (each.transpose(1, 2) for each in (q, k, v))
        seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
        mask = seen.tril(k.shape[2] - q.shape[2]) if causal else seen
        found = F.scaled_dot_product_attention(q, k, v, mask, scale=softmax_scale, enable_gqa=True)
        return (found.transpose(1, 2).contiguous(), None)

    package.flash_attn_func = flash_attn_func  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "aiter", package)
    return package


def heads(rows: int = 6, keys: int = 6, groups: int = 4, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Queries, keys and values as a projection leaves them: the heads of a position side by side."""
    sizes = ((rows, 4), (keys, groups), (keys, groups))
    return [torch.randn(2, n, h, 16, dtype=dtype).transpose(1, 2) for n, h in sizes]


def ways(routed: Any) -> list[str]:
    return [way.__name__ for way in routed._chosen.values()]


def test_aiter_is_one_of_the_ways_for_16_bits_without_a_mask(choosing: Any, aiter: ModuleType) -> None:
    routed = choosing("routed_attention", _by_aiter=0.5)
    mask = torch.ones(6, 6, dtype=torch.bool).tril()
    for given, more, wanted in (
        (heads(dtype=torch.bfloat16), {}, "_by_aiter"),
        (heads(dtype=torch.bfloat16, groups=2), {"enable_gqa": True, "scale": 0.2}, "_by_aiter"),
        (heads(dtype=torch.bfloat16), {"is_causal": True}, "_by_aiter"),
        (heads(dtype=torch.bfloat16, rows=3), {"is_causal": True}, "_by_pytorch"),
        (heads(dtype=torch.bfloat16), {"attn_mask": mask}, "_by_pytorch"),
        (heads(), {}, "_by_pytorch"),
    ):
        expected = F.scaled_dot_product_attention(*given, **more)  # type: ignore[arg-type]
        tolerance = 2e-2 if given[0].dtype == torch.bfloat16 else 1e-5
        found = routed.routed_attention(*given, **more)
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
        assert (ways(routed)[-1], found.stride()) == (wanted, expected.stride())


def test_attention_that_takes_other_arguments_is_not_used(choosing: Any, aiter: ModuleType) -> None:
    aiter.flash_attn_func = lambda qkv, causal: qkv  # type: ignore[attr-defined]
    assert choosing("routed_attention")._aiter() is None


def test_dropout_and_other_ranks_get_what_pytorch_chooses(choosing: Any) -> None:
    routed = choosing("routed_attention", _by_flash=0.1)
    routed.routed_attention(*heads(), dropout_p=0.5)
    flat = [torch.randn(5, 6, 16) for _ in range(3)]
    assert torch.equal(routed.routed_attention(*flat), F.scaled_dot_product_attention(*flat))
    assert ways(routed) == []


def test_threads_leave_the_settings_as_they_were(choosing: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    routed = choosing("routed_attention", _by_flash=0.5)
    given = heads()
    routed.routed_attention(*given)
    assert ways(routed) == ["_by_flash"]
    plain, enabled = routed._by_pytorch, routed._ENABLED

    def wait() -> bool:
        """Another thread has its turn."""
        time.sleep(0.001)
        return True

    monkeypatch.setattr(routed, "_ENABLED", (*enabled, wait))
    monkeypatch.setattr(routed, "_by_pytorch", lambda *given: plain(*given) if wait() else None)

    def many() -> None:
        with torch.no_grad():
            for _ in range(20):
                routed.routed_attention(*given)

    with ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(many) for _ in range(4)]:
            each.result()
    assert all(each() for each in enabled)
