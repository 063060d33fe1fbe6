"""What a change does to the process beside its results: settings that hold for all other code in there, too."""

from __future__ import annotations

import gc
import os
import random
import sys
import warnings

import torch

_OF_TORCH = """
get_num_threads get_num_interop_threads get_default_dtype get_default_device is_grad_enabled is_inference_mode_enabled
are_deterministic_algorithms_enabled is_deterministic_algorithms_warn_only_enabled get_float32_matmul_precision
initial_seed is_anomaly_enabled
"""
_OF_BACKENDS = """
cudnn.enabled cudnn.benchmark cudnn.deterministic cudnn.allow_tf32 cuda.matmul.allow_tf32
cuda.matmul.allow_fp16_reduced_precision_reduction cuda.matmul.allow_bf16_reduced_precision_reduction
mkldnn.enabled mkldnn.deterministic opt_einsum.enabled
"""
_OF_ATTENTION = "flash_sdp_enabled mem_efficient_sdp_enabled math_sdp_enabled cudnn_sdp_enabled"
_OF_NUMPY = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}  # by default
_ALL_WARNINGS = (Warning, UserWarning, RuntimeWarning, FutureWarning)
_OF_GC = "isenabled get_threshold get_debug"


def read():
    """{setting: its value as text}."""
    found = {f"torch.{name}": getattr(torch, name, None) for name in _OF_TORCH.split()}
    found |= {f"gc.{name}": getattr(gc, name) for name in _OF_GC.split()}
    cuda = torch.backends.cuda
    found |= {f"torch.backends.cuda.{name}": getattr(cuda, name, None) for name in _OF_ATTENTION.split()}
    found = {name: repr(ask()) for name, ask in found.items() if ask is not None}
    for name in _OF_BACKENDS.split():
        value = torch.backends
        for part in name.split("."):
            value = getattr(value, part, None)
        found[f"torch.backends.{name}"] = repr(value)
    found["torch.set_flush_denormal"] = repr(bool(torch.full((), 1e-310, dtype=torch.float64) * 0.5 == 0))
    for action, message, category, module, _ in warnings.filters:
        if message is None and module is None and category in _ALL_WARNINGS:
            found[f"warnings.filters[{category.__name__}]"] = action
    numpy = sys.modules.get("numpy")
    if numpy is not None and numpy.geterr() != _OF_NUMPY:
        found["numpy.geterr"] = repr(numpy.geterr())
    found["sys.switchinterval"] = repr(sys.getswitchinterval())
    theirs = ("TORCH", "_TORCH", "TRITON")  # of compilers, which note there what they have done
    return found | {f"os.environ[{name!r}]": value for name, value in os.environ.items() if not name.startswith(theirs)}


def stir():
    """Draw from each generator of random numbers, so that what begins one anew shows; where each stands then."""
    numpy = sys.modules.get("numpy.random")
    torch.rand(())
    random.random()
    if numpy is not None:
        numpy.random()
    return stand()


def stand():
    """{generator of random numbers: where it stands}. Those of PyTorch's devices are left out."""
    numpy = sys.modules.get("numpy.random")
    found = {"torch.random": torch.default_generator.get_state().numpy().tobytes(), "random": random.getstate()}
    return found if numpy is None else {**found, "numpy.random": repr(numpy.get_state())}


def changed(before):
    """{setting: what it is now} of all that are not what they were; None for what is gone."""
    now = read()
    return {name: now.get(name) for name in sorted(before.keys() | now.keys()) if now.get(name) != before.get(name)}
