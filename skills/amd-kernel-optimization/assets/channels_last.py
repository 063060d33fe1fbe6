# Ratchet: channels_last.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""Lay the weights of convolutions out with the channels last (NHWC), which matrix units read in order.

`channels_last(module)`, at the end of its `__init__`, does so for every convolution of two or three dimensions below
it. A convolution whose weights lie so gives its results so, and what works on single elements keeps the order: nothing
is converted but the first input. Shapes, values and state dicts stay the same, strides do not: a `view` of such a
result that joins its dimensions fails, where `reshape` copies. Weights that are not there yet (lazy modules) are left
alone.
"""

import torch
from torch import nn

FORMATS = {
    nn.Conv2d: torch.channels_last,
    nn.ConvTranspose2d: torch.channels_last,
    nn.Conv3d: torch.channels_last_3d,
    nn.ConvTranspose3d: torch.channels_last_3d,
}


def channels_last(module):
    for each in module.modules():
        layout = next((layout for kind, layout in FORMATS.items() if isinstance(each, kind)), None)
        if layout is not None and not nn.parameter.is_lazy(each.weight):
            each.to(memory_format=layout)
