"""Let torch say that it is for ROCm and has a GPU, while all tensors are on the CPU.

So a script takes its way through its kernels. Does not pretend more than that: what needs a real GPU fails.
"""

import contextlib
import types


def pretending(target):
    """A context in which torch has this GPU; nothing at all where there is no torch."""
    try:
        import torch
        from torch.overrides import TorchFunctionMode
    except ImportError:
        return contextlib.nullcontext()
    answers = {
        torch.Tensor.is_cuda.__get__: True,
        torch.Tensor.is_cpu.__get__: False,
        torch.Tensor.device.__get__: torch.device("cuda", 0),
    }

    class Mode(TorchFunctionMode):
        def __torch_function__(self, function, _, args=(), kwargs=None):
            if function in answers:
                return answers[function]
            if function == torch.Tensor.cuda:
                return args[0]
            kwargs = {name: _moved(value) for name, value in (kwargs or {}).items()}
            return function(*(_moved(value) for value in args), **kwargs)

    def _moved(value):
        if isinstance(value, torch.device):
            return torch.device("cpu") if value.type == "cuda" else value
        if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")):
            return "cpu"
        return value

    return _replaced(torch, _said(target), Mode())


@contextlib.contextmanager
def _replaced(torch, said, mode):
    kept, hip = {name: getattr(torch.cuda, name) for name in said}, torch.version.hip
    torch.version.hip = hip or "7.0"
    for name, value in said.items():
        setattr(torch.cuda, name, lambda *_, value=value, **__: value)
    try:
        with mode:
            yield
    finally:
        torch.version.hip = hip
        for name, value in kept.items():
            setattr(torch.cuda, name, value)


def _said(target):
    """What functions of `torch.cuda` answer."""
    properties = types.SimpleNamespace(
        name=f"AMD {target['name']}",
        gcnArchName=target["name"],
        multi_processor_count=target["compute_units"],
        warp_size=target["wave_size"],
        total_memory=1 << 37,
        shared_memory_per_block=target["lds_bytes"],
        max_threads_per_multi_processor=2048,
        major=9,
        minor=4,
    )
    return {
        "is_available": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_name": properties.name,
        "get_device_properties": properties,
        "get_device_capability": (9, 4),
        "synchronize": None,
        "set_device": None,
        "empty_cache": None,
        "manual_seed": None,
        "manual_seed_all": None,
    }
