# Ratchet: gated_mul.py. Copied into this repository by an accepted change; it needs torch, and triton where it is used.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""The gate of a gated MLP, act(gate) * up, as one Triton kernel, for inference.

    silu         y = gate * sigmoid(gate) * up
    gelu         y = gate * (1 + erf(gate / sqrt(2))) / 2 * up
    gelu_tanh    y = gate * (1 + tanh(sqrt(2 / pi) * (gate + 0.044715 gate^3))) / 2 * up

in float32, rounded once. Where the kernel does not apply, the activation runs as it is, and then the product: off the
GPU, where a gradient is needed, for float64 and other shapes, and for modules that are not known to compute one of
these, or that have hooks. Outside of compiled code also on a GPU that is not the current one, on which Triton launches,
for subclasses of tensors, and under tracing, dispatch modes, function transforms and forward-mode AD, none of which
sees a launch.
"""

from functools import partial

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.modules import module as module_hooks

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
_GELU = {"none": "gelu", "tanh": "gelu_tanh"}
_PLAIN = {"silu": F.silu, "gelu": F.gelu, "gelu_tanh": partial(F.gelu, approximate="tanh")}


def gated_mul(gate, up, activation="silu", *, silu="", gelu="", gelu_tanh=""):
    """gate, up: (..., n), rows may be strided. Returns act(gate) * up.

    activation: the name of one of the above, or a module, looked at in each call.
    silu, gelu, gelu_tanh: the full name of a class of modules that computes it, as silu="package.activations.SiLU". A
    class with a constructor of its own, by which modules of it may differ, is not believed to.
    """
    if isinstance(activation, str):
        kind, plain = activation, _PLAIN[activation]
    else:
        kind, plain = _computed_by(activation, {silu: "silu", gelu: "gelu", gelu_tanh: "gelu_tanh"}), activation
    if kind is None or not _applies(gate, up):
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
    hooked = module._forward_hooks or module._forward_pre_hooks or "forward" in module.__dict__
    seen_by_all = module_hooks._global_forward_hooks or module_hooks._global_forward_pre_hooks
    return None if hooked or seen_by_all else kind


def _applies(gate, up):
    if triton is None or not gate.is_cuda or not _may_launch(gate) or gate.dtype not in _DTYPES or gate.dim() == 0:
        return False
    if gate.shape != up.shape or gate.dtype != up.dtype or gate.device != up.device:
        return False
    return not (torch.is_grad_enabled() and (gate.requires_grad or up.requires_grad))


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
    launch = _launch(kernel, y.numel() // columns, columns, {"BLOCK": BLOCK, "num_warps": 4})
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


def _may_launch(x):
    """Whether operations mean and record nothing else, on the current device. Compiled code sees to that by itself."""
    if torch.compiler.is_compiling():
        return True
    if type(x) not in (torch.Tensor, torch.nn.Parameter) or x.get_device() != torch.cuda.current_device():
        return False
    return not (
        torch._C._len_torch_dispatch_stack() > 0
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch.autograd.forward_ad._current_level >= 0
        or torch.jit.is_tracing()
    )


def _launch(kernel, rows, columns, rule):
    """The options of a launch: what was measured for these columns and the next larger number of rows, else the rule.

    Code that torch.compile makes takes only the options that the rule has.
    """
    seen = sorted(r for r, c in TUNED if c == columns)
    if not seen or not seen[0] <= rows <= seen[-1] or torch.cuda.get_device_name() != TUNED_ON:
        return rule
    tuned, direct = TUNED[next(r for r in seen if rows <= r), columns], isinstance(kernel, triton.JITFunction)
    return {**rule, **{name: value for name, value in tuned.items() if direct or name in rule}}
