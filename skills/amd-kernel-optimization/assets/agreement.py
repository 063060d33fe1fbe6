# Ratchet: agreement.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""Whether another way to a result gives the same, within what rounding in another order makes of it."""

import torch

AGREES = {torch.float64: 1e-10, torch.float32: 1e-4, torch.bfloat16: 2e-2, torch.float16: 4e-3}  # of the largest result


def agree(result, wanted):
    if result.shape != wanted.shape or result.dtype != wanted.dtype:
        return False
    if not wanted.numel():
        return True
    made, wanted = result.to(_wide(wanted)), wanted.to(_wide(wanted))
    most = wanted.abs().max()  # of an infinite one everything would be a part, and NaN agrees with nothing
    return bool(most.isfinite() & ((made - wanted).abs().max() <= AGREES[result.dtype] * most))


def _wide(tensor):
    return torch.promote_types(tensor.dtype, torch.float32)
