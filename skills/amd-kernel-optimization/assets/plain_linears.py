# Ratchet: plain_linears.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""The linear layers of a module that may become ones of a subclass: not those that a PackedLinear packs, since it takes
plain ones only, whose weights lie where it has put them.

The others are of that subclass from then on, on every device: what looks for `type(layer) is nn.Linear` (an initialiser
that is called later, `quantize_dynamic`, a PackedLinear or a group of experts made later) passes them by.
"""

from torch import nn


def plain_linears(module):
    packed = set()
    for part in module.modules():
        if getattr(type(part), "watches_itself", False):
            packed.update(part._linears)
    return [layer for layer in module.modules() if type(layer) is nn.Linear and layer not in packed]
