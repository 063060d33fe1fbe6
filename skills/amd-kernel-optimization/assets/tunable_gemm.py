# Ratchet: tunable_gemm.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""Let PyTorch's TunableOp choose the GEMM kernel of each shape among those of rocBLAS and hipBLASLt.

`tune_gemm()` does nothing off ROCm, or where PYTORCH_TUNABLEOP_ENABLED is set: then the user has decided. With a file
of recorded choices beside this one they are replayed and nothing is measured; PyTorch refuses that file by itself when
it comes from other versions of its libraries. Without one, each new shape is measured the first time it is used, so
that time stands still once; nothing is written. Call it before the first GEMM, and never while a graph is captured.
"""

import os
from pathlib import Path

import torch

RECORDED = Path(__file__).resolve().with_name("tunable_gemm.csv")
MAX_DURATION_MS = 30  # of measuring one kernel
COLD_CACHE_MB = 512  # buffers rotated while measuring: MI300 has 256 MiB of cache, which would flatter the losers
_done = False


def tune_gemm():
    """Switch TunableOp on, once in a process."""
    global _done
    if _done or torch.version.hip is None or "PYTORCH_TUNABLEOP_ENABLED" in os.environ:
        return
    _done = True
    tunable = torch.cuda.tunable
    tunable.enable(True)
    tunable.set_filename(os.devnull)  # it would write its choices into the current folder
    tunable.tuning_enable(not (RECORDED.exists() and tunable.read_file(str(RECORDED))))
    tunable.set_max_tuning_duration(MAX_DURATION_MS)
    tunable.set_rotating_buffer_size(COLD_CACHE_MB)
