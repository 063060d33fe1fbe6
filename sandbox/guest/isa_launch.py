"""Run a script as if there were an AMD GPU, and keep what it would have launched; everything else runs on the CPU.

Does not run a kernel: outputs hold what was in memory, and a script that checks them fails after its launches.
"""

import filecmp
import os
import runpy
import sys

from .isa_pretend import pretending
from .isa_refusal import Refusal, in_one_line, place_in
from .isa_variant import OPTIONS, Variant

MOST = 32  # different launches


def captured(script, file, wanted, target):
    """The launches of kernels of `file`, one variant for each that differs. Raises: Refusal."""
    from .bootstrap import _WithoutOurs

    script = os.path.realpath(script)
    sys.argv = [script]
    sys.path.insert(0, os.path.dirname(script))
    sys.meta_path.insert(0, _WithoutOurs)
    launches, failed = [], None
    with _recording(launches), pretending(target):
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


class _recording:
    """Keeps each compilation that a launch asks for, and lets none happen: so there is nothing to launch, either."""

    def __init__(self, launches):
        self.launches, self.seen = launches, set()

    def __enter__(self):
        from triton.runtime.jit import JITFunction

        if not hasattr(JITFunction, "_do_compile"):
            raise Refusal("no_triton", "launches of this Triton cannot be captured; describe the kernel in a JSON file")
        self.original = JITFunction._do_compile
        recording = self

        def keep(jit, key, signature, device, constexprs, options, attrs, *_, **__):
            recording.keep(jit, signature, constexprs, options, attrs)

        JITFunction._do_compile = keep

    def __exit__(self, *_):
        from triton.runtime.jit import JITFunction

        JITFunction._do_compile = self.original

    def keep(self, jit, signature, constexprs, options, attrs):
        defaults = {name: getattr(type(options), name, None) for name in OPTIONS}
        said = {
            name: getattr(options, name)
            for name in OPTIONS
            if getattr(options, name, None) not in (None, "", (), defaults[name])
        }
        said.pop("enable_fp_fusion", None)  # follows from the environment, and is worked out again
        variant = Variant(jit, signature, constexprs, attrs, said)
        mark = str((id(jit), signature, constexprs, attrs, sorted(said.items())))
        if mark not in self.seen and len(self.seen) < MOST:
            self.seen.add(mark)
            variant.config = f"launch {len(self.seen)}"
            self.launches.append(variant)
