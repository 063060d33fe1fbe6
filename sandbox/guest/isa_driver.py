"""A driver for Triton that has no device: it names an architecture, and refuses to load or launch anything."""

import os
import sys

from .isa_refusal import Refusal, in_one_line

_OLDEST = (3, 5)  # older ones need a linker of ROCm, and launch in another form


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
