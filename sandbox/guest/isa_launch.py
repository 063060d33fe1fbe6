"""Run a script as if there were an AMD GPU, and keep what it would have launched; everything else runs on the CPU.

Does not run a kernel: outputs hold what was in memory, and a script that checks them fails after its launches.
"""

import contextlib
import filecmp
import os
import runpy
import sys
import types

from .isa_driver import OPTIONS, Variant
from .isa_kernels import Refusal, in_one_line, place_in

MOST = 32  # different launches


def captured(script, file, wanted, target):
    """The launches of kernels of `file`, one variant for each that differs. Raises: Refusal."""
    from .bootstrap import _WithoutOurs

    script = os.path.realpath(script)
    sys.argv = [script]
    sys.path.insert(0, os.path.dirname(script))
    sys.meta_path.insert(0, _WithoutOurs)
    launches, failed = [], None
    with _recording(launches), _pretending(target):
        try:
            _run(script)
        except (Exception, SystemExit) as error:
            failed = None if isinstance(error, SystemExit) and not error.code else error
    ours = [one for one in launches if _is_the_same(one.jit.fn.__code__.co_filename, file)]
    found = [one for one in ours if wanted in (None, one.jit.fn.__name__)]
    if not found:
        others = sorted({one.jit.fn.__name__ for one in launches})
        if failed is not None and not launches:
            raise Refusal("launch_raised", f"{in_one_line(failed)}{place_in(script, failed)}") from failed
        raise Refusal("no_launch", "", others)
    if failed is not None:
        found[0].notes.append(f"the script failed later on: {in_one_line(failed)[:200]}")
    return found


def _is_the_same(path, file):
    """Also when it is installed elsewhere, and was loaded from there."""
    if os.path.realpath(path) == os.path.realpath(file):
        return True
    return os.path.basename(path) == os.path.basename(file) and filecmp.cmp(path, file, shallow=False)


def _run(script):
    """As a program; then, where it declares them, `build()(*inputs(0))` or the KernelBench form."""
    found = runpy.run_path(script, run_name="__main__")
    if callable(found.get("build")) and callable(found.get("inputs")):
        inputs = found["inputs"](0)
        call = found["build"]()
    elif callable(found.get("Model")) and callable(found.get("get_inputs")):
        init = found["get_init_inputs"]() if callable(found.get("get_init_inputs")) else ()
        inputs = tuple(found["get_inputs"]())
        call = found["Model"](*init)
    else:
        return
    import torch  # what declares a workload has it; a file of kernels may live without

    training = found.get("mode") == "training"
    if isinstance(call, torch.nn.Module):
        call.train(training)
    with torch.set_grad_enabled(training):  # as a worker calls it: kernels for inference look at that
        call(**inputs) if isinstance(inputs, dict) else call(*inputs)


@contextlib.contextmanager
def _recording(launches):
    """Keeps each compilation that a launch asks for, and lets none happen, so that there is nothing to launch."""
    from triton.runtime.jit import JITFunction

    if not hasattr(JITFunction, "_do_compile"):
        raise Refusal("no_triton", "launches of this Triton cannot be captured; describe the kernel in a JSON file")
    seen = set()

    def keep(jit, key, signature, device, constexprs, options, attrs, *_, **__):
        defaults = {name: getattr(type(options), name, None) for name in OPTIONS}
        said = {
            name: getattr(options, name)
            for name in OPTIONS
            if getattr(options, name, None) not in (None, "", (), defaults[name])
        }
        said.pop("enable_fp_fusion", None)  # follows from the environment, and is worked out again
        mark = str((id(jit), signature, constexprs, attrs, sorted(said.items())))
        if mark not in seen and len(seen) < MOST:
            seen.add(mark)
            launches.append(Variant(jit, signature, constexprs, attrs, said, f"launch {len(seen)}"))

    original, JITFunction._do_compile = JITFunction._do_compile, keep
    try:
        yield
    finally:
        JITFunction._do_compile = original


@contextlib.contextmanager
def _pretending(target):
    """Torch, where there is one, says that it is for ROCm and has this GPU, while all tensors are on the CPU.

    So a script takes its way through its kernels. What needs a real GPU fails.
    """
    try:
        import torch
        from torch.overrides import TorchFunctionMode
    except ImportError:
        yield
        return
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
            kwargs = {name: moved(value) for name, value in (kwargs or {}).items()}
            return function(*map(moved, args), **kwargs)

    def moved(value):
        if isinstance(value, torch.device):
            return torch.device("cpu") if value.type == "cuda" else value
        return "cpu" if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")) else value

    said = _said(target)
    kept, hip = {name: getattr(torch.cuda, name) for name in said}, torch.version.hip
    torch.version.hip = hip or "7.0"
    for name, value in said.items():
        setattr(torch.cuda, name, lambda *_, value=value, **__: value)
    try:
        with Mode():
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
    nothing = ("synchronize", "set_device", "empty_cache", "manual_seed", "manual_seed_all")
    return {
        "is_available": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_name": properties.name,
        "get_device_properties": properties,
        "get_device_capability": (9, 4),
        **dict.fromkeys(nothing),
    }
