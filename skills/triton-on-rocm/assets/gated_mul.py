# Ratchet: gated_mul.py. Copied into this repository by an accepted change; it needs torch, and triton where it is used.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""The gate of a gated MLP, act(gate) * up, as one Triton kernel, for inference.

    silu         y = gate * sigmoid(gate) * up
    gelu         y = gate * (1 + erf(gate / sqrt(2))) / 2 * up
    gelu_tanh    y = gate * (1 + tanh(sqrt(2 / pi) * (gate + 0.044715 gate^3))) / 2 * up

in float32, rounded once. Where the kernel does not apply (off the GPU, where a gradient is needed, float64, other
shapes), torch computes it.
"""

from functools import partial

import torch
import torch.nn.functional as F

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

BLOCK = 1024  # elements of one program: a flat grid, so that a single row still fills the device
CHOICES = tuple(
    {"BLOCK": b, "num_warps": n} for b in (512, 1024, 2048, 4096) for n in (2, 4, 8)
)  # what a tuner may try
TUNED, TUNED_ON = {}, ""  # (rows, columns) -> the fastest of them, by measuring on the device of that name
_NAMESPACE = __name__.replace(".", "_")  # a second copy of this file, in another package, has operators of its own
_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
_PLAIN = {"silu": F.silu, "gelu": F.gelu, "gelu_tanh": partial(F.gelu, approximate="tanh")}


def gated_mul(gate, up, activation="silu"):
    """gate, up: (..., n), rows may be strided. Returns act(gate) * up."""
    if not _applies(gate, up):
        return _PLAIN[activation](gate) * up
    if torch.compiler.is_compiling():
        return _operator(gate, up, activation)
    return _run(gate, up, activation, _kernel)


def _applies(gate, up):
    if triton is None or not gate.is_cuda or gate.dtype not in _DTYPES or gate.dim() == 0:
        return False
    if gate.shape != up.shape or gate.dtype != up.dtype or gate.device != up.device:
        return False
    return not (torch.is_grad_enabled() and (gate.requires_grad or up.requires_grad))


if triton is not None:

    @triton.jit
    def _kernel(
        gate_ptr, up_ptr, y_ptr, gate_row_stride, up_row_stride, columns, total,
        ACTIVATION: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        kept = index < total
        row, column = index // columns, index % columns
        gate = tl.load(gate_ptr + row * gate_row_stride + column, mask=kept, other=0.0).to(tl.float32)
        up = tl.load(up_ptr + row * up_row_stride + column, mask=kept, other=0.0).to(tl.float32)
        if ACTIVATION == "silu":
            y = gate * tl.sigmoid(gate)
        elif ACTIVATION == "gelu":
            y = 0.5 * gate * (1.0 + tl.erf(gate * 0.7071067811865476))
        else:  # (1 + tanh(z)) / 2 is sigmoid(2 z)
            y = gate * tl.sigmoid(1.5957691216057308 * (gate + 0.044715 * gate * gate * gate))
        tl.store(y_ptr + index, (y * up).to(y_ptr.dtype.element_ty), mask=kept)

    @torch.library.triton_op(f"{_NAMESPACE}::gated_mul", mutates_args={})
    def _operator(gate: torch.Tensor, up: torch.Tensor, activation: str) -> torch.Tensor:
        return _run(gate, up, activation, torch.library.wrap_triton(_kernel))


def _run(gate, up, activation, kernel):
    columns = gate.shape[-1]
    y = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    if y.numel() == 0:
        return y
    gate_rows, up_rows = _rows(gate, columns), _rows(up, columns)
    launch = _launch(kernel, y.numel() // columns, columns, {"BLOCK": BLOCK, "num_warps": 4})
    kernel[(triton.cdiv(y.numel(), launch["BLOCK"]),)](
        gate_rows, up_rows, y, gate_rows.stride(0), up_rows.stride(0), columns, y.numel(), ACTIVATION=activation,
        **launch,
    )  # fmt: skip
    return y


def _rows(x, columns):
    """(rows, columns) with contiguous rows; slices of one packed tensor stay as they are."""
    return x.reshape(-1, columns) if x.stride(-1) == 1 else x.contiguous().view(-1, columns)


def _launch(kernel, rows, columns, rule):
    """The options of a launch: what was measured for these columns and the next larger number of rows, else the rule.

    Code that torch.compile makes takes only the options that the rule has.
    """
    seen = sorted(r for r, c in TUNED if c == columns)
    if not seen or not seen[0] <= rows <= seen[-1] or torch.cuda.get_device_name() != TUNED_ON:
        return rule
    tuned, direct = TUNED[next(r for r in seen if rows <= r), columns], isinstance(kernel, triton.JITFunction)
    return {**rule, **{name: value for name, value in tuned.items() if direct or name in rule}}
