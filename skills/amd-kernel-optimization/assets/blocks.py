# Ratchet: blocks.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""Attention that computes only the blocks in which a mask lets something through, by torch's FlexAttention.

It is compiled for each shape, which takes seconds. The blocks are computed for every mask without waiting for the
device, and kept while the mask lives and torch counts no change of it. Rows in which a mask of numbers excludes
everything are computed like the others, since there its numbers decide. Without gradients.
"""

import functools

import torch
from torch.nn import functional as F
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from torch.utils.weak import WeakTensorKeyDictionary

from .eager import is_capturing
from .streams import Computed

SIZE = 128  # of a block, in rows and keys
WORTH = 0.25  # of all blocks must be empty
LEAST = -1e30  # kernels multiply by log2(e), where the least float32 becomes -inf: no row of it would be an average

_known = WeakTensorKeyDictionary()  # mask -> (its version, rows, keys, the blocks, when they are computed)


def pay(mask, rows, keys):
    """Whether enough blocks are empty, for which the host waits."""
    if min(rows, keys) < 2 * SIZE or not 2 <= mask.dim() <= 4:
        return False
    some, _ = _tiles(_in_full(mask, rows, keys))
    return bool((~some).float().mean() >= WORTH)


def attention(query, key, value, mask, scale, enable_gqa):
    """query (b, h, n, d), key and value (b, g, m, d), mask broadcast to (b, h, n, m), boolean or of numbers to add."""
    batch, heads, rows, keys = *query.shape[:3], key.shape[2]
    seen = mask[(None,) * (4 - mask.dim())].expand(batch, heads, rows, keys)

    def added(score, b, h, i, j):
        number = seen[b, h, i, j].to(score.dtype)
        return score + torch.where((number < LEAST) & (number > -torch.inf), LEAST, number)

    def allowed(b, h, i, j):
        return seen[b, h, i, j]

    is_boolean = mask.dtype == torch.bool
    blocks = BlockMask.from_kv_blocks(
        *_blocks(mask, rows, keys),
        BLOCK_SIZE=SIZE,
        mask_mod=allowed if is_boolean else None,
        seq_lengths=(rows, keys),
        compute_q_blocks=False,
    )
    return _compiled()(query, key, value, None if is_boolean else added, blocks, scale=scale, enable_gqa=enable_gqa)


@functools.cache
def _compiled():
    return torch.compile(flex_attention, dynamic=False, fullgraph=True)


def _blocks(mask, rows, keys):
    """(how many, which) of the blocks that the mask cuts through, and of those that it leaves whole."""
    # the lists of a captured call belong to its graph, whose mask may have other values when it is replayed
    version = None if mask.is_inference() or (mask.is_cuda and is_capturing()) else mask._version
    known = _known.get(mask)
    if version is None or known is None or known[:3] != (version, rows, keys):
        blocks = _listed(mask, rows, keys)
        if version is not None:
            _known[mask] = (version, rows, keys, blocks, Computed(blocks))
        return blocks
    *_, blocks, computed = known
    computed.for_here(blocks)
    return blocks


def _listed(mask, rows, keys):
    some, every = _tiles(_in_full(mask, rows, keys))
    whole = every if mask.dtype == torch.bool else torch.zeros_like(every)  # numbers are added in every block
    found = []
    for which in (some & ~whole, whole):
        found.append(which.sum(-1, dtype=torch.int32))
        found.append(torch.argsort(which.to(torch.uint8), dim=-1, descending=True, stable=True).to(torch.int32))
    return tuple(found)


def _in_full(mask, rows, keys):
    """What it lets through: (batch or 1, heads or 1, rows, keys)."""
    mask = mask[(None,) * (4 - mask.dim())]
    if mask.dtype != torch.bool:
        mask = mask > torch.finfo(mask.dtype).min / 2
        mask = mask | ~mask.any(-1, keepdim=True)
    return mask.expand(-1, -1, rows, keys)


def _tiles(allowed):
    """Whether each block lets something through, and whether everything: (batch, heads, blocks, blocks)."""
    batch, heads, rows, keys = allowed.shape
    allowed = F.pad(allowed, (0, -keys % SIZE, 0, -rows % SIZE))
    tiles = allowed.view(batch, heads, -(-rows // SIZE), SIZE, -(-keys // SIZE), SIZE)
    return tiles.any(5).any(3), tiles.all(5).all(3)
