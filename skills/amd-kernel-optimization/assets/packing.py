# Ratchet: packing.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""Linear layers whose weights become views into one tensor."""

import torch
from torch import nn

from .processes import work_together


def pack(linears):
    """(weight, bias or None, rows of each) that their weights are views into from then on; a missing bias counts as
    zeros. None where that is not possible as they are now.
    """
    if work_together() or not all(map(is_plain, linears)):
        return None
    weights, biases = [linear.weight for linear in linears], [linear.bias for linear in linears]
    given = [bias for bias in biases if bias is not None]
    if not _packable(weights) or (given and not _packable(given)):
        return None
    sizes = [len(weight) for weight in weights]
    with torch.inference_mode(False), torch.no_grad():
        return _rows(weights, sizes), _rows(biases, sizes) if given else None, sizes


def is_plain(linear):
    """Whether it is a Linear and no more."""
    return (type(linear) is nn.Linear and "forward" not in linear.__dict__) and not (
        linear._forward_hooks or linear._forward_pre_hooks or linear._backward_hooks or linear._backward_pre_hooks
    )


def _rows(tensors, sizes):
    like = next(t for t in tensors if t is not None)
    packed = torch.zeros((sum(sizes), *like.shape[1:]), dtype=like.dtype, device=like.device)
    for part, tensor in zip(packed.split(sizes), tensors, strict=True):
        if tensor is not None:
            part.copy_(tensor)
            tensor.data = part
    return packed


def _packable(tensors):
    first = tensors[0]
    return len({id(t) for t in tensors}) == len(tensors) and all(
        type(t) is nn.Parameter
        and type(t.data) is torch.Tensor
        and t.layout == torch.strided
        and t.dtype == first.dtype
        and t.device == first.device
        and t.shape[1:] == first.shape[1:]
        and not t.is_meta
        for t in tensors
    )
