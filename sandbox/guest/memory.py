"""Where tensors lie in memory, and how much of it they keep."""

from __future__ import annotations

import torch


def is_spread(tensor):
    """Whether numbers of it have one place in memory."""
    return tensor.layout == torch.strided and any(
        s == 0 and n > 1 for n, s in zip(tensor.shape, tensor.stride(), strict=True)
    )


def storage_bytes(tensor):
    """What lives as long as this tensor does; 0 where it has no memory of its own."""
    try:
        return tensor.untyped_storage().nbytes()
    except (RuntimeError, NotImplementedError):
        return 0


def overlap(one, other):
    """Whether some place of memory belongs to both."""
    if one is other:
        return True
    if storage(one) is None or storage(one) != storage(other) or one.dtype != other.dtype:
        return storage(one) is not None and storage(one) == storage(other)
    if any(_end(a) <= b.storage_offset() for a, b in ((one, other), (other, one))):
        return False
    places = torch.zeros(max(_end(one), _end(other)), dtype=torch.bool, device=one.device)
    places.as_strided(one.shape, one.stride(), one.storage_offset()).fill_(True)
    return bool(places.as_strided(other.shape, other.stride(), other.storage_offset()).any())


def _end(tensor):
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.storage_offset() + reach + 1


def storage(tensor):
    """Where its memory is; None for what has none of its own (an empty tensor, another layout, a wrapper)."""
    try:
        return (tensor.device, tensor.untyped_storage().data_ptr()) if tensor.numel() else None
    except (RuntimeError, NotImplementedError):
        return None
