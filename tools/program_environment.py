"""The environment variables that a program of the target, or of ours beside it, is started with in the sandbox.

Does not pass on the agent's own environment: only what an interpreter needs to find its libraries, devices and
weights.
"""

from __future__ import annotations

import os
from pathlib import Path

PASSED = (
    "PATH",
    "LD_LIBRARY_PATH",
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "ROCM_PATH",
    "CUDA_HOME",
    "CC",
    "CXX",
    "HF_HUB_CACHE",
    "TORCH_HOME",
)
USER = "ratchet"  # torch asks who it is, and a separate user id has no name


def environment(home: Path | None, *, tmp: Path | None = None, threads: int | None = None) -> dict[str, str]:
    """`home` is where the program may write, `tmp` its folder for temporary files, the same unless told.

    Who sets both later gives None. `threads` is how many its mathematical libraries use, theirs to say where None.
    """
    counted = () if threads is None else ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    return {
        **{name: os.environ[name] for name in PASSED if name in os.environ},
        "LANG": "C.UTF-8",
        "USER": USER,
        "PYTHONDONTWRITEBYTECODE": "1",
        "HF_HUB_OFFLINE": "1",
        **({} if home is None else {"HOME": str(home), "TMPDIR": str(tmp or home)}),
        **{name: str(threads) for name in counted},
    }
