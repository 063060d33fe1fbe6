# Ratchet: routed_attention.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""Attention by the kernel that was measured to be the fastest for each shape on this device.

`routed_attention` takes what torch.nn.functional.scaled_dot_product_attention takes, and gives the same within the
rounding of its type. The ways are PyTorch's own choice, each of its fused kernels by itself (on ROCm that of Composable
Kernel, too, where PyTorch was built with it) and, where AMD's aiter is installed, its own of 16-bit types. A shape is
what counts: sizes and strides of all tensors, type, mask, scale; prefill and decoding are shapes of their own.
fastest.py decides which is taken, and when.

PyTorch's own choice is taken with gradients, dropout, autocast or another rank than four, on a CPU, where one of its
kernels was turned off, and where fastest.py says so. A kernel is chosen by settings that PyTorch keeps for the whole
process: routed calls take turns, but attention that is not routed, called by another thread in just that moment, finds
the others turned off.
"""

import threading

import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from . import fastest

_NAMESPACE = __name__.replace(".", "_")  # a second copy of this file, in another package, has its own operator
_chosen = {}  # shape -> way
_settings = threading.RLock()  # of the process, while one kernel is chosen
_ENABLED = (
    torch.backends.cuda.flash_sdp_enabled,
    torch.backends.cuda.mem_efficient_sdp_enabled,
    torch.backends.cuda.math_sdp_enabled,
    torch.backends.cuda.cudnn_sdp_enabled,
)


def routed_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """query (b, h, n, d), key (b, g, m, d), value (b, g, m, e), attn_mask broadcast to (b, h, n, m); (b, h, n, e)."""
    if dropout_p or not all(map(fastest.applies, (query, key, value))) or not _is_usual(query, key, value, enable_gqa):
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    run = _opaque if torch.compiler.is_compiling() else _attention
    return run(query, key, value, attn_mask, is_causal, scale, enable_gqa)


def _is_usual(query, key, value, enable_gqa):
    """Batches and heads that match: others are repeated on the way, which says nothing of a kernel."""
    sizes = [(each.dim(), each.shape[0], each.shape[1]) for each in (query, key, value)]
    heads = sizes[0] == sizes[1] or (enable_gqa and sizes[0][:2] == sizes[1][:2])
    return query.dim() == 4 and sizes[1] == sizes[2] and heads


def _attention(*given):
    with _settings:
        return _routed(*given)


def _routed(query, key, value, mask, is_causal, scale, enable_gqa):
    given = query, key, value, mask, is_causal, scale, enable_gqa
    if not all(enabled() for enabled in _ENABLED) or not (mask is None or type(mask) is torch.Tensor):
        return _by_pytorch(*given)  # the user has chosen already
    shape = tuple(_facts(each) if isinstance(each, torch.Tensor) else each for each in given)
    return fastest.run(_chosen, shape, _by_pytorch, _ways, *given)


@torch.library.custom_op(f"{_NAMESPACE}::attention", mutates_args=())
def _opaque(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> torch.Tensor:
    found, wanted = _attention(query, key, value, mask, is_causal, scale, enable_gqa), _memory(query, value)
    return found if found.stride() == wanted.stride() else wanted.copy_(found)


@_opaque.register_fake
def _(query, key, value, mask, is_causal, scale, enable_gqa):
    return _memory(query, value)


def _memory(query, value):
    """For a result in the order in which fused kernels write it: that of the queries."""
    if query.shape[-1] == value.shape[-1]:
        return torch.empty_like(query)
    batch, heads, rows, _ = query.shape
    return query.new_empty(batch, rows, heads, value.shape[-1]).transpose(1, 2)


def _facts(tensor):
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device, tensor.data_ptr() % 16


def _ways(*_):
    ways = [_by_flash, _by_efficient, _by_cudnn]
    if torch.version.hip is not None and getattr(torch.backends.cuda, "is_ck_sdpa_available", bool)():
        ways.append(_by_ck)
    return ways + ([_by_aiter] if _aiter() is not None else [])


def _by_pytorch(query, key, value, mask, is_causal, scale, enable_gqa):
    return F.scaled_dot_product_attention(
        query, key, value, mask, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa
    )


def _by_flash(*given):
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return _by_pytorch(*given)


def _by_efficient(*given):
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        return _by_pytorch(*given)


def _by_cudnn(*given):
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return _by_pytorch(*given)


def _by_ck(*given):
    before = torch.backends.cuda.preferred_rocm_fa_library()
    torch.backends.cuda.preferred_rocm_fa_library("ck")
    try:
        return _by_flash(*given)
    finally:
        torch.backends.cuda.preferred_rocm_fa_library(before)


def _by_aiter(query, key, value, mask, is_causal, scale, enable_gqa):
    """Its causal mask is aligned to the last key, PyTorch's to the first: they are the same for as many of both."""
    if mask is not None or query.dtype not in (torch.float16, torch.bfloat16):
        raise ValueError("no mask, 16 bits")
    if is_causal and query.shape[2] != key.shape[2]:
        raise ValueError("another causal mask")
    if key.shape[1] != query.shape[1] and not enable_gqa:
        raise ValueError("heads that do not match")
    places = (each.transpose(1, 2) for each in (query, key, value))
    found = _aiter()(*places, softmax_scale=scale, causal=is_causal)
    return (found[0] if isinstance(found, (tuple, list)) else found).transpose(1, 2)


def _aiter():
    return fastest.installed("aiter", "flash_attn_func", ("q", "k", "v"), ("softmax_scale", "causal"))
