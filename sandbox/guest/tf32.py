"""Products and convolutions as TF32 makes them: what a device may do to float32 where the target's settings allow it.

Of each operand 10 bits behind the binary point are left (NVIDIA A100 whitepaper, "TF32"). A library may or may not make
use of that, by shapes and by layout: the original need not, and one that does is no less right.
"""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_aten = torch.ops.aten
_CONVOLUTIONS = (_aten.convolution.default, _aten.convolution_backward.default)
_PRODUCTS = (_aten.mm.default, _aten.bmm.default, _aten.addmm.default, _aten.baddbmm.default)
_OPERANDS = {
    _aten.convolution_backward.default: (0, 1, 2),
    _aten.addmm.default: (1, 2),
    _aten.baddbmm.default: (1, 2),
}


def allowed():
    """The operations for which it is, of those that the target may run."""
    if not torch.cuda.is_available() or torch.version.hip:
        return ()
    conv, matmul = getattr(torch.backends.cudnn, "conv", None), torch.backends.cuda.matmul
    if conv is None:  # torch before 2.9
        convolutions, products = torch.backends.cudnn.allow_tf32, matmul.allow_tf32
    else:  # the old names raise where the new ones were used
        convolutions, products = conv.fp32_precision == "tf32", matmul.fp32_precision == "tf32"
    return (*(_CONVOLUTIONS if convolutions else ()), *(_PRODUCTS if products else ()))


def rounded(tensor):
    """To the nearest number with 10 bits behind the binary point, in the dtype it has; integers as they are."""
    if tensor.is_complex():
        return torch.view_as_complex(rounded(torch.view_as_real(tensor)))
    if not tensor.is_floating_point():
        return tensor
    bits = tensor.to(torch.float32).view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32).to(tensor.dtype)


class Rounding(TorchDispatchMode):
    """Rounds the operands of these operations."""

    def __init__(self, operations):
        super().__init__()
        self.operations = operations

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func not in self.operations:
            with self:  # in inference mode what is made of others arrives whole
                found = func.decompose(*args, **kwargs)
            return func(*args, **kwargs) if found is NotImplemented else found
        places = _OPERANDS.get(func, (0, 1))
        operands = (rounded(each) if at in places else each for at, each in enumerate(args))
        return func(*operands, **kwargs)
