"""Compile the Triton kernels of a file for AMD architectures, and write what the compiler made of them.

A script for the target's interpreter: `python isa.py REQUEST.json`. Needs no GPU and no driver, launches nothing, and
writes to no cache but that of its own environment. `tools/isa/compile.py` writes the request; the answers are in
`tools/isa/answer.py`.
"""

import importlib
import json
import os
import runpy
import sys
import time

KEPT = ("num_warps", "num_stages", "shared", "global_scratch_size")  # of the metadata
STAGES = ("ttgir", "amdgcn")


def answer(request):
    from . import isa_driver, isa_kernels, isa_launch, isa_signature

    out = request["out"]
    try:
        triton = isa_driver.stand_in(request["targets"][0])
        if request["launch"]:
            found = isa_launch.captured(request["launch"], request["file"], request["kernel"], request["targets"][0])
        else:
            kernels = isa_kernels.load(request["file"])
            found = [
                variant
                for kernel in isa_kernels.choose(kernels, request["kernel"], every=request["every_kernel"])
                for variant in isa_signature.variants(kernel, request["signature"] or {}, request["every_config"])
            ]
    except isa_kernels.Refusal as refusal:
        _write(out, "plan.json", {"error": refusal.said()})
        return
    _write(out, "plan.json", {"triton": triton, "variants": [variant.described() for variant in found]})
    for number, variant in enumerate(found):
        for target in request["targets"]:
            name = f"{number}.{target['name']}"
            if [number, target["name"]] in request["skip"]:
                continue  # an earlier start got this far
            _write(out, "doing.json", {"variant": number, "arch": target["name"]})
            isa_driver.point_at(target)
            _write(out, name + ".json", _compiled(variant, target, os.path.join(out, name)))


def _compiled(variant, target, path):
    """The answer for one compilation. A compiler's refusal is a finding, whatever its type."""
    from .isa_kernels import in_one_line

    begun = time.perf_counter()
    try:
        kernel = variant.compile(target)
    except Exception as error:
        return {"error": in_one_line(error)}
    seconds = time.perf_counter() - begun
    for stage in STAGES:
        with open(f"{path}.{stage}", "w") as file:
            file.write(kernel.asm[stage])
    metadata = {name: getattr(kernel.metadata, name, None) for name in KEPT}
    return {"seconds": seconds, **{name: value for name, value in metadata.items() if value is not None}}


def _write(folder, name, value):
    """Atomically: a compiler that crashes must not leave half of a file."""
    path = os.path.join(folder, name)
    with open(path + ".part", "w") as file:
        json.dump(value, file)
    os.replace(path + ".part", path)


if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [p for p in sys.path if os.path.abspath(p or os.curdir) != here]
    bootstrap = runpy.run_path(os.path.join(here, "bootstrap.py"))
    bootstrap["_load_package"]()
    with open(sys.argv[1]) as request:
        importlib.import_module(bootstrap["NAME"] + ".isa").answer(json.load(request))
