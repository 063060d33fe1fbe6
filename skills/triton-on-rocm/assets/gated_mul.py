# Ratchet: silu_mul.py. Copied into this repository by an accepted change; it needs torch, and triton where it is used.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""The gate of a gated MLP, SiLU(gate) * up, as one Triton kernel, for inference.

    y = gate * sigmoid(gate) * up           in float32, rounded once

Where the kernel does not apply (off the GPU, where a gradient is needed, float64, other shapes), torch computes it.
"""

import torch
import torch.nn.functional as F

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

BLOCK = 1024  # elements of one program: a flat grid, so that a single row still fills the device
_NAMESPACE = __name__.replace(".", "_")  # a second copy of this file, in another package, has operators of its own
_DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def silu_mul(gate, up):
    """gate, up: (..., n), rows may be strided. Returns SiLU(gate) * up."""
    if not _applies(gate, up):
        return F.silu(gate) * up
    if torch.compiler.is_compiling():
        return _operator(gate, up)
    return _run(gate, up, _kernel)


def _applies(gate, up):
    if triton is None or not gate.is_cuda or gate.dtype not in _DTYPES or gate.dim() == 0:
        return False
    if gate.shape != up.shape or gate.dtype != up.dtype or gate.device != up.device:
        return False
    return not (torch.is_grad_enabled() and (gate.requires_grad or up.requires_grad))


if triton is not None:

    @triton.jit
    def _kernel(gate_ptr, up_ptr, y_ptr, gate_row_stride, up_row_stride, columns, total, BLOCK: tl.constexpr):
        index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        kept = index < total
        row, column = index // columns, index % columns
        gate = tl.load(gate_ptr + row * gate_row_stride + column, mask=kept, other=0.0).to(tl.float32)
        up = tl.load(up_ptr + row * up_row_stride + column, mask=kept, other=0.0).to(tl.float32)
        y = gate * tl.sigmoid(gate) * up
        tl.store(y_ptr + index, y.to(y_ptr.dtype.element_ty), mask=kept)

    @torch.library.triton_op(f"{_NAMESPACE}::silu_mul", mutates_args={})
    def _operator(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        return _run(gate, up, torch.library.wrap_triton(_kernel))


def _run(gate, up, kernel):
    columns = gate.shape[-1]
    y = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    if y.numel() == 0:
        return y
    gate_rows, up_rows = _rows(gate, columns), _rows(up, columns)
    kernel[(triton.cdiv(y.numel(), BLOCK),)](
        gate_rows, up_rows, y, gate_rows.stride(0), up_rows.stride(0), columns, y.numel(), BLOCK=BLOCK, num_warps=4,
    )  # fmt: skip
    return y


def _rows(x, columns):
    """(rows, columns) with contiguous rows; slices of one packed tensor stay as they are."""
    return x.reshape(-1, columns) if x.stride(-1) == 1 else x.contiguous().view(-1, columns)
