"""The names of the ten steps, in their order, and how a step may end.

Imports next to nothing, so that the command line can name them without loading the steps.
"""

from __future__ import annotations

from typing import Literal

STEPS = (
    "profile_baseline",
    "audit_compute",
    "locate_layers",
    "write_kernels",
    "fuse_projections",
    "swap_attention",
    "compile_model",
    "route_gemm",
    "capture_graph",
    "compose_stack",
)

StepStatus = Literal["done", "skipped", "nothing", "failed"]
