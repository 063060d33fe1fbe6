"""The values behind integers: what the operators that choose by size are given while a model is called."""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
CHOOSING = {aten.argmax, aten.argmin, aten.max, aten.min, aten.topk, aten.sort, aten.multinomial}
MOST = 8  # the first ones: what is chosen decides what later ones are given


class Choices(TorchDispatchMode):
    """While it is entered, `given` gets copies of the floating-point tensors that a choice is made from."""

    def __init__(self):
        super().__init__()
        self.given = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket in CHOOSING and len(self.given) < MOST and args[0].is_floating_point():
            self.given.append(args[0].detach().clone())
        return func(*args, **(kwargs or {}))
