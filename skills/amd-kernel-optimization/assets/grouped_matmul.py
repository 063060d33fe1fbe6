# Ratchet: grouped_matmul.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""Batched matrix products where one key/value head serves several query heads, without repeating it in memory.

    out[b, h] = a[b, h] @ b[b, h // (heads_a / heads_b)]

It refuses nothing that torch.matmul takes: operands of other shapes go there.
"""

import torch


def grouped_matmul(a, b):
    """a: (batch, heads, m, k), b: (batch, groups, k, n) with heads a multiple of groups. Returns (batch, heads, m, n).

    The heads of one group are stacked along the rows, which is where a matrix product has room for them.
    """
    if a.dim() != 4 or b.dim() != 4:
        return torch.matmul(a, b)
    batch, heads, m, k = a.shape
    groups = b.shape[1]
    if heads == groups or not groups or heads % groups:
        return torch.matmul(a, b)
    out = torch.matmul(a.reshape(batch, groups, heads // groups * m, k), b)
    return out.view(out.shape[0], heads, m, b.shape[-1])  # a batch of 1 may be that of the other operand
