"""What all guests do with the device."""

from __future__ import annotations

import torch


def synchronize():
    """Wait for everything on the device, side streams included."""
    if torch.cuda.is_initialized():  # asking whether there is one takes longer
        torch.cuda.synchronize()


def has_failed():
    """Whether the device answers nothing more in this process, as after an index that was out of bounds."""
    try:
        synchronize()
    except RuntimeError:
        return True
    return False
