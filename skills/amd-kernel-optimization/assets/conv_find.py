# Ratchet: conv_find.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""Let the device's library for convolutions measure its kernels, once for each new shape, and keep the fastest.

`find_convolutions()` says so to PyTorch, for the whole process: MIOpen's find step on ROCm, cuDNN's benchmark mode on
CUDA. The first call of each shape takes longer. Where the same call must give the same bits in every process, this is
not for you: another kernel may add up in another order. It does nothing without a GPU, where deterministic algorithms
are asked for, by `torch.use_deterministic_algorithms` or by `torch.backends.cudnn.deterministic`, and on ROCm where
MIOPEN_FIND_MODE is set: then the user has decided.
"""

import os

import torch


def find_convolutions():
    decided = torch.version.hip is not None and "MIOPEN_FIND_MODE" in os.environ
    decided |= torch.are_deterministic_algorithms_enabled() or torch.backends.cudnn.deterministic
    if torch.backends.cuda.is_built() and not decided:
        torch.backends.cudnn.benchmark = True
