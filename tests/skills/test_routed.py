"""Kernels of aiter, a stand-in here, are right where they are the fastest way; see `test_fastest.py`."""

from __future__ import annotations

import copy
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F


def gemm_a16w16(A: Any, B: Any, bias: Any = None, otype: Any = None) -> torch.Tensor:
    return F.linear(A, B, bias)


def flash_attn_func(q: Any, k: Any, v: Any, softmax_scale: Any = None, causal: bool = False) -> Any:
    q, k, v = (each.transpose(1, 2) for each in (q, k, v))
    seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
    mask = seen.tril(k.shape[2] - q.shape[2]) if causal else seen
    found = F.scaled_dot_product_attention(q, k, v, mask, scale=softmax_scale, enable_gqa=True)
    return (found.transpose(1, 2).contiguous(), None)


@pytest.fixture
def aiter(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the assets use of aiter: a product, and attention over (b, n, h, d), causal up to the last key."""
    names = ("aiter", "aiter.tuned_gemm")
    modules: dict[str, Any] = {name: ModuleType(name) for name in names}
    modules["aiter"].flash_attn_func = flash_attn_func
    modules["aiter.tuned_gemm"].gemm_a16w16 = gemm_a16w16
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return modules


def ways(routed: Any) -> list[str]:
    return [way.__name__ for way in routed._chosen.values()]


@pytest.mark.parametrize(
    ("asset", "module", "name", "other"),
    [
        ("routed_linear", "aiter.tuned_gemm", "gemm_a16w16", lambda inp, weights, bias: inp),
        ("routed_attention", "aiter", "flash_attn_func", lambda qkv, causal: qkv),
    ],
)
def test_what_takes_other_arguments_is_not_used(
    choosing: Any, aiter: dict[str, Any], asset: str, module: str, name: str, other: Any
) -> None:
    setattr(aiter[module], name, other)
    assert choosing(asset)._aiter() is None


def net_of(routed: Any) -> tuple[nn.Sequential, nn.Sequential]:
    plain = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4, bias=False))
    nn.init.normal_(plain[0].bias)
    net = copy.deepcopy(plain)
    routed.route_linears(net)
    return net, plain


def test_a_product_of_aiter_adds_the_bias_once(choosing: Any, aiter: dict[str, Any]) -> None:
    routed = choosing("routed_linear", _by_aiter=0.5)
    net, plain = net_of(routed)
    x = torch.randn(2, 3, 16)
    torch.testing.assert_close(net(x), plain(x))
    assert ways(routed) == ["_by_aiter"] * 2
    assert isinstance(net[0], nn.Linear) and list(net.state_dict()) == list(plain.state_dict())


def heads(rows: int = 6, keys: int = 6, groups: int = 4, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Queries, keys and values as a projection leaves them: the heads of a position side by side."""
    sizes = ((rows, 4), (keys, groups), (keys, groups))
    return [torch.randn(2, n, h, 16, dtype=dtype).transpose(1, 2) for n, h in sizes]


def test_aiter_is_one_of_the_ways_for_16_bits_without_a_mask(choosing: Any, aiter: dict[str, Any]) -> None:
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
