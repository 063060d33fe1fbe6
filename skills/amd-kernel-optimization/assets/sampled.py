# Ratchet: sampled.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""What is in tensors, whoever wrote it: NumPy, another library and `.data` write without torch counting it.

Of a tensor of up to WHOLE elements each is looked at; of a larger one some of each row and of each column, since to
read all weights takes as long as a product with few rows. An uncounted write to single elements of a larger tensor is
not seen. Looking waits for the device.
"""

import math

import torch

from .kept import equal
from .streams import wait_for

WHOLE = 1024


class Sampled:
    """Tensors as they are now, which are not kept alive."""

    def __init__(self, tensors):
        groups = {}
        for place, tensor in enumerate(tensors):
            if tensor.layout == torch.strided and tensor.numel() and not (tensor.is_meta or tensor.is_quantized):
                whole, parts = groups.setdefault((tensor.device, tensor.dtype), ([], []))
                span = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
                if span <= WHOLE or span > tensor.numel():  # in gaps may be what others write
                    whole.append(place)
                else:
                    parts.append((place, *_part(span, tensor)))
        self._groups = [(whole, [*zip(*parts, strict=True)]) for whole, parts in groups.values()]
        self._values = self._read(tensors)
        wait_for(self._values)

    def are_still(self, tensors):
        """Whether these, in the same order and laid out as those were, hold the same."""
        return all(map(equal, self._read(tensors), self._values))

    def _read(self, tensors):
        """One tensor for each device and dtype. Asked in each call: in loops that are written in C."""
        read = []
        with torch._C.DisableTorchFunction(), torch.no_grad():
            for whole, parts in self._groups:
                pieces = [*map(torch.flatten, map(tensors.__getitem__, whole))]
                if parts:
                    pieces += map(torch.Tensor.as_strided, map(tensors.__getitem__, parts[0]), *parts[1:])
                read.append(torch.cat(pieces))
        return read


def _part(span, tensor):
    """(size, stride, offset) of elements at one distance in memory, less than a row and in another column each time."""
    shorter, row = max((min(step, span // step), step) for step in tensor.stride() if step)
    distance = next(each for each in range(max(1, shorter - 1), 0, -1) if math.gcd(each, row) == 1)
    return (-(-span // distance),), (distance,), tensor.storage_offset()
