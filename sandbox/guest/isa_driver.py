"""A driver for Triton without a device, and one way to compile a kernel with it.

The driver names an architecture, and refuses to load or launch anything.
"""

import contextlib
import os
import sys
from dataclasses import dataclass, field

from .isa_kernels import Refusal, in_one_line

_OLDEST = (3, 5)  # older ones need a linker of ROCm, and launch in another form

# what a launch may say to the AMD backend; others are for other devices or follow from these
OPTIONS = (
    "num_warps",
    "num_stages",
    "num_ctas",
    "waves_per_eu",
    "matrix_instr_nonkdim",
    "kpack",
    "schedule_hint",
    "allow_flush_denorm",
    "enable_fp_fusion",
    "llvm_fn_attrs",
    "wgp_cu_mode",
)
_DIVISIBLE = ["tt.divisibility", 16]
_LONGEST = 80  # characters of one constant


class _Utils:
    def __init__(self, target):
        self._target = target

    def get_device_properties(self, device=0):
        return {
            "max_shared_mem": self._target["lds_bytes"],
            "multiprocessor_count": self._target["compute_units"],
            "warpSize": self._target["wave_size"],
            "max_num_regs": 65536,
            "arch": self._target["name"],
        }

    def load_binary(self, *_):
        raise RuntimeError("nothing is launched here")


class _Driver:
    """Answers what code asks when it is imported or prepares a launch."""

    def __init__(self, target, gpu_target):
        self.target, self.gpu_target, self.utils = target, gpu_target, _Utils(target)

    def get_current_target(self):
        return self.gpu_target

    def get_current_device(self):
        return 0

    def set_current_device(self, device):
        pass

    def get_current_stream(self, device=0):
        return 0

    def get_active_torch_device(self):
        import torch

        return torch.device("cpu")

    def get_device_interface(self):
        import torch

        return torch.cuda

    def get_benchmarker(self):
        def benchmark(call, quantiles=None, **_):
            call()
            return [1.0] * len(quantiles or [1])

        return benchmark

    def clear_cache(self, cache):
        pass


def stand_in(target):
    """Load Triton with such a driver for this target; returns its version. Raises: Refusal."""
    os.environ["TRITON_ALWAYS_COMPILE"] = "1"
    try:
        import triton
        import triton.backends
    except Exception as error:
        raise Refusal("no_triton", f"{sys.executable} cannot load triton: {in_one_line(error)}") from error
    version = triton.__version__
    if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST:
        raise Refusal("no_triton", f"triton {version} is too old: {'.'.join(map(str, _OLDEST))} or newer is needed")
    if "amd" not in triton.backends.backends:
        raise Refusal("no_triton", f"triton {version} was built without its AMD backend")
    point_at(target)
    return version


def point_at(target):
    from triton.runtime import driver

    driver.set_active(_Driver(target, gpu_target(target)))


def gpu_target(target):
    from triton.backends.compiler import GPUTarget

    return GPUTarget("hip", target["name"], target["wave_size"])


@dataclass
class Variant:
    jit: object
    signature: dict  # parameter -> type
    constants: dict  # path into the arguments -> value
    known: dict  # path -> letters of Triton's: D divisible by 16, S within 2 GiB; or its attributes
    options: dict
    config: str = ""  # which of an autotuner's it is
    notes: list = field(default_factory=list)

    def compile(self, target):
        import triton
        from triton.compiler import ASTSource

        wanted = gpu_target(target)
        backend = triton.compiler.make_backend(wanted)
        attributes = {
            path: backend.parse_attr(known) if isinstance(known, str) else known for path, known in self.known.items()
        }
        source = ASTSource(self.jit, dict(self.signature), dict(self.constants), attributes)
        with contextlib.redirect_stdout(None):
            return triton.compile(source, target=wanted, options=dict(self.options))

    def described(self):
        names = list(self.signature)
        code = self.jit.fn.__code__
        return {
            "kernel": self.jit.fn.__name__,
            "file": code.co_filename,
            "line": code.co_firstlineno,
            "config": self.config,
            "signature": {name: str(kind) for name, kind in self.signature.items()},
            "aligned": [names[path[0]] for path, known in self.known.items() if "D" in known or _DIVISIBLE in known],
            "constants": {
                names[path[0]] + "".join(f"[{part}]" for part in path[1:]): _said(value)
                for path, value in self.constants.items()
            },
            "options": {name: _said(value) for name, value in self.options.items()},
            "notes": self.notes,
        }


def _said(value):
    named = getattr(value, "__name__", None) or getattr(value, "name", None)
    return str(named if isinstance(named, str) else value)[:_LONGEST]
