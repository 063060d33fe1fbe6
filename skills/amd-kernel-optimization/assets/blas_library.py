# Ratchet: blas_library.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""Prefer one of the device's libraries for matrix products.

`prefer_blas(name)` says so to PyTorch, for the whole process: "cublas" (rocBLAS on ROCm), "cublaslt" (hipBLASLt) or
"ck". PyTorch still goes elsewhere for what that library cannot do. It does nothing without a GPU, and where one of the
variables that choose is set: then the user has decided.
"""

import os

import torch

DECIDED_BY = ("TORCH_BLAS_PREFER_CUBLASLT", "TORCH_BLAS_PREFER_HIPBLASLT")


def prefer_blas(library):
    if torch.backends.cuda.is_built() and not any(name in os.environ for name in DECIDED_BY):
        torch.backends.cuda.preferred_blas_library(library)
