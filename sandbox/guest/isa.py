"""Compile the Triton kernels of a file for AMD architectures, and write what the compiler made of them.

A script for the target's interpreter: `python isa.py REQUEST.json`. Needs no GPU and no driver, launches nothing, and
touches no cache but that of its own environment. What it is asked and what it answers is in `tools/isa/answer.py`.
"""

import importlib.util
import json
import os
import sys
import time

NAME = "_ratchet_guest"
KEPT = ("name", "num_warps", "num_stages", "shared", "warp_size", "waves_per_eu", "global_scratch_size")
STAGES = ("ttgir", "amdgcn")


def answer(request):
    from . import isa_driver, isa_kernels, isa_launch, isa_signature
    from .isa_refusal import Refusal

    out = request["out"]
    try:
        triton = isa_driver.stand_in(request["targets"][0])
        if request.get("launch"):
            found = isa_launch.captured(
                request["launch"], request["file"], request.get("kernel"), request["targets"][0]
            )
        else:
            kernels = isa_kernels.load(request["file"])
            chosen = isa_kernels.choose(kernels, request.get("kernel"), every=request.get("every_kernel", False))
            found = [
                variant
                for kernel in chosen
                for variant in isa_signature.variants(kernel, request.get("signature"), request["every_config"])
            ]
    except Refusal as refusal:
        _write(out, "plan.json", {"error": refusal.said()})
        return
    _write(out, "plan.json", {"triton": triton, "variants": [variant.described() for variant in found]})
    for number, variant in enumerate(found):
        for target in request["targets"]:
            name = f"{number}.{target['name']}"
            if [number, target["name"]] in request["skip"]:
                continue  # an earlier start got this far
            _write(out, "doing.json", {"variant": number, "arch": target["name"]})
            _write(out, name + ".json", _compiled(variant, target, os.path.join(out, name)))


def _compiled(variant, target, path):
    """What is told of one compilation. A compiler's refusal is a finding, whatever its type."""
    from . import isa_driver, isa_refusal

    isa_driver.point_at(target)
    begun = time.perf_counter()
    try:
        kernel = variant.compile(target)
    except Exception as error:
        return {"error": isa_refusal.in_one_line(error)}
    seconds = time.perf_counter() - begun
    for stage in STAGES:
        with open(f"{path}.{stage}", "w") as file:
            file.write(kernel.asm[stage])
    metadata = {name: getattr(kernel.metadata, name, None) for name in KEPT}
    return {"seconds": seconds, **{name: value for name, value in metadata.items() if value is not None}}


def _write(folder, name, value):
    """At once or not at all: a compiler that crashes must not leave half of a file."""
    path = os.path.join(folder, name)
    with open(path + ".part", "w") as file:
        json.dump(value, file)
    os.replace(path + ".part", path)


def _load_package():
    here = os.path.dirname(os.path.abspath(__file__))
    spec = importlib.util.spec_from_file_location(
        NAME, os.path.join(here, "__init__.py"), submodule_search_locations=[here]
    )
    package = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = package
    spec.loader.exec_module(package)


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [p for p in sys.path if os.path.abspath(p or os.curdir) != here]
    with open(sys.argv[1]) as file:
        request = json.load(file)
    _load_package()
    importlib.import_module(NAME + ".isa").answer(request)


if __name__ == "__main__":
    import importlib

    main()
