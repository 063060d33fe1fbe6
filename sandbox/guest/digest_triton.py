"""The row-wise sums of `digest.py` in one pass over the outputs, for a GPU.

The torch operations would read and write the outputs two dozen times, which would weigh more than a fast call.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK_ROWS = 64


@triton.jit
def _mix(x):
    x = (x ^ (x >> 29)) * (-4658895280553007687)
    return (x ^ (x >> 32)) * (-7723592293110705685)


# not specialised: a random key is divisible by 16 now and then, and would compile again in a timed call
@triton.jit(do_not_specialize=["count", "key", "rows"])
def _sums_kernel(lanes, out, count, key, rows, BLOCK: tl.constexpr, COLS: tl.constexpr, PRODUCTS: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * BLOCK
    row = first + tl.arange(0, BLOCK)[:, None].to(tl.int64)
    column = tl.arange(0, COLS)[None, :].to(tl.int64)
    i = row * COLS + column
    # lanes past the end are zero, and rows past the last do not count
    x = tl.load(lanes + i, mask=i < count, other=0)
    x = _mix(x ^ ((i + 1) * (-7046029254386353131) + key))
    spread = tl.zeros((BLOCK, COLS), tl.int64)
    for k in tl.static_range(PRODUCTS):
        into = _mix((k * COLS + column + 1) * (-7046029254386353131)) | 1
        back = _mix(((PRODUCTS + k) * COLS + column + 1) * (-7046029254386353131)) | 1
        spread += tl.sum(x * into, axis=1)[:, None] * back
    x = tl.where(row < rows, _mix(x ^ spread), 0)
    tl.atomic_add(out + tl.arange(0, COLS), tl.sum(x, axis=0))  # whole numbers: in any order the same


def sums(lanes, key, columns, products=4):
    """int64[columns] sums of the mixed rows. `lanes` is int64[n], contiguous, on the GPU; `key` is signed 64 bits."""
    count = lanes.numel()
    rows = -(-count // columns)
    blocks = max(1, -(-rows // BLOCK_ROWS))
    out = torch.zeros(columns, dtype=torch.int64, device=lanes.device)
    _sums_kernel[(blocks,)](lanes, out, count, key, rows, BLOCK=BLOCK_ROWS, COLS=columns, PRODUCTS=products)
    return out
