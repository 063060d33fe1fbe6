# Ratchet: gated_mul.py. Copied into this repository by an accepted change; it needs torch, and triton where it is used.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""The gate of a gated MLP, act(gate) * up, as one Triton kernel, for inference.

    silu         y = gate * sigmoid(gate) * up
    gelu         y = gate * (1 + erf(gate / sqrt(2))) / 2 * up
    gelu_tanh    y = gate * (1 + tanh(sqrt(2 / pi) * (gate + 0.044715 gate^3))) / 2 * up

in float32, rounded once. Where the kernel does not apply (see launching.py), for gate and up of different shapes or
dtypes, and for modules that have hooks or are not known to compute one of these, the activation runs as it is, and
then the product.
"""

from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from .exactly import is_unwatched
from .launching import Tuned, may_launch, tl, triton

BLOCK = 1024  # elements of one program: a flat grid, so that a single row still fills the device
CHOICES = tuple(
    {"BLOCK": b, "num_warps": n} for b in (512, 1024, 2048, 4096) for n in (2, 4, 8)
)  # what a tuner may try
TUNED = Tuned({}, "")  # what a tuner found
_NAMESPACE = __name__.replace(".", "_")  # a second copy of this file, in another package, has operators of its own
_GELU = {"none": "gelu", "tanh": "gelu_tanh"}
_PLAIN = {"silu": F.silu, "gelu": F.gelu, "gelu_tanh": partial(F.gelu, approximate="tanh")}


def gated_mul(gate, up, activation="silu", *, silu="", gelu="", gelu_tanh=""):
    """gate, up: (..., n), rows may be strided. Returns act(gate) * up.

    activation: the name of one of the above, or a module, looked at in each call.
    silu, gelu, gelu_tanh: the full name of a class of modules that computes it, as silu="package.activations.SiLU". A
    class with its own constructor, by which modules of it may differ, is not believed to.
    """
    if isinstance(activation, str):
        kind, plain = activation, _PLAIN[activation]
    else:
        kind, plain = _computed_by(activation, {silu: "silu", gelu: "gelu", gelu_tanh: "gelu_tanh"}), activation
    if kind is None or not may_launch(gate, up) or gate.shape != up.shape or gate.dtype != up.dtype:
        return plain(gate) * up
    if torch.compiler.is_compiling():
        return _operator(gate, up, kind)
    return _run(gate, up, kind, _kernel)


def _computed_by(module, known):
    """Which of the activations, where this is sure and nobody wants to see the call; else None."""
    cls = type(module)
    if cls is nn.SiLU:
        kind = None if module.inplace else "silu"
    elif cls is nn.GELU:
        kind = _GELU.get(module.approximate)
    else:
        kind = known.get(f"{cls.__module__}.{cls.__qualname__}")
        if kind is None or cls.__init__ is not nn.Module.__init__:
            return None
    return kind if is_unwatched(module) else None


if triton is not None:

    @triton.jit
    def _kernel(
        gate_ptr,
        up_ptr,
        y_ptr,
        gate_row_stride,
        up_row_stride,
        columns,
        total,
        ACTIVATION: tl.constexpr,
        BLOCK: tl.constexpr,
    ):
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
    launch = TUNED.options(kernel, y.numel() // columns, columns, {"BLOCK": BLOCK, "num_warps": 4})
    kernel[(triton.cdiv(y.numel(), launch["BLOCK"]),)](
        gate_rows,
        up_rows,
        y,
        gate_rows.stride(0),
        up_rows.stride(0),
        columns,
        y.numel(),
        ACTIVATION=activation,
        **launch,
    )
    return y


def _rows(x, columns):
    """(rows, columns) with contiguous rows; slices of one packed tensor stay as they are."""
    return x.reshape(-1, columns) if x.stride(-1) == 1 else x.contiguous().view(-1, columns)
