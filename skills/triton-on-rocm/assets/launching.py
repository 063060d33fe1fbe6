# Ratchet: launching.py. Copied into this repository by an accepted change; it needs torch, and triton where it is used.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""What the launches of all kernels here share: when a kernel may run, and with which options.

A kernel is for inference. It does not run off the GPU, without Triton, where a gradient is needed, for float64, or for
tensors on different devices. Outside compiled code it also does not run on a GPU that is not the current one (Triton
launches on that), for subclasses of tensors, and under tracing, dispatch modes, function transforms and forward-mode
AD, which do not see a launch.
"""

import torch

try:
    import triton
    import triton.language as tl
except ImportError:  # then no kernel ever runs
    triton = tl = None

_DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def may_launch(*tensors):
    """Whether a kernel may run on these tensors; None among them is ignored."""
    x = tensors[0]
    if triton is None or not x.is_cuda:
        return False
    records = torch.is_grad_enabled()
    for tensor in tensors:
        if tensor is None:
            continue
        if tensor.dtype not in _DTYPES or tensor.dim() == 0 or tensor.device != x.device:
            return False
        if records and tensor.requires_grad:
            return False
    if torch.compiler.is_compiling():  # compiled code takes care of devices, modes and tracing itself
        return True
    if type(x) not in (torch.Tensor, torch.nn.Parameter) or x.get_device() != torch.cuda.current_device():
        return False
    return not (
        torch._C._len_torch_dispatch_stack() > 0
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch.autograd.forward_ad._current_level >= 0
        or torch.jit.is_tracing()
    )


def may_norm(x, eps, only, vectors, residual=None):
    """Whether a kernel may normalise x, (..., n), with these vectors, (n,) or None, and x plus a residual like it.

    Rows are contiguous, all dtypes the same, and eps is a number. Under autocast, torch's own norms give float32. only:
    the dtype, by its name, that x must have: where the caller's own code is known to compute this in no other.
    """
    if torch.is_autocast_enabled("cuda") or not isinstance(eps, (int, float)):
        return False
    if not may_launch(x, residual, *vectors) or (only is not None and x.dtype != getattr(torch, only)):
        return False
    for vector in vectors:
        if vector is not None and (vector.shape != x.shape[-1:] or vector.stride(0) != 1 or vector.dtype != x.dtype):
            return False
    if residual is not None and (residual.shape != x.shape or residual.stride(-1) != 1 or residual.dtype != x.dtype):
        return False
    return x.stride(-1) == 1


class Tuned:
    """The fastest options of launches, by (rows, columns), as measured on the device of that name."""

    def __init__(self, by_size, device):
        self.by_size, self.device = by_size, device

    def options(self, kernel, rows, columns, rule):
        """What was measured for these columns and the next larger number of rows, else the rule.

        Code that torch.compile makes takes only the options that the rule has.
        """
        seen = sorted(r for r, c in self.by_size if c == columns)
        if not seen or not seen[0] <= rows <= seen[-1] or torch.cuda.get_device_name() != self.device:
            return rule
        tuned = self.by_size[next(r for r in seen if rows <= r), columns]
        direct = isinstance(kernel, triton.JITFunction)
        return {**rule, **{name: value for name, value in tuned.items() if direct or name in rule}}
