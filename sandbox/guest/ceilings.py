"""What this device reaches: bytes a second of a copy, FLOP a second of a product, and how fast it can be asked.

A script for the target's interpreter, which loads nothing of the target: `ceilings.py OUT`. The best of several rounds
counts, because everything that disturbs makes it slower.
"""

from __future__ import annotations

import json
import sys
import time

import torch

ROUNDS = 7
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def best_s(run, repeats):
    """Seconds of one run: the best round of several, each of `repeats` runs."""
    run()
    found = []
    for _ in range(ROUNDS):
        synchronize()
        start = time.perf_counter()
        for _ in range(repeats):
            run()
        synchronize()
        found.append((time.perf_counter() - start) / repeats)
    return min(found)


def copying(size, device):
    """A copy of so many bytes."""
    source, target = (torch.empty(size // 4, dtype=torch.float32, device=device).fill_(1.0) for _ in range(2))
    return lambda: target.copy_(source)


def synchronize():
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def main(out):
    on_gpu = torch.cuda.is_available()
    device = "cuda" if on_gpu else "cpu"
    # far more than any cache: AMD's largest holds 256 MiB
    size = (1 << 30) if on_gpu else (256 << 20)
    copy_s = best_s(copying(size, device), 5 if on_gpu else 1)
    width = 8192 if on_gpu else 1024
    peaks = {}
    for name, dtype in DTYPES.items():
        if not on_gpu and name != "float32":
            width = 512  # a CPU without instructions for it takes very long
        try:
            left, right = (torch.randn(width, width, device=device).to(dtype) for _ in range(2))
            peaks[name] = 2.0 * width**3 / best_s(lambda a=left, b=right: a @ b, 3) / 1e12
        except RuntimeError:
            continue  # a type that this device has no product for
    tiny = torch.zeros(16, device=device)
    launch_s = best_s(lambda: tiny.add_(1.0), 200)
    with open(out, "w") as file:
        json.dump({"memory_gbps": 2 * size / copy_s / 1e9, "peak_tflops": peaks, "launch_us": launch_s * 1e6}, file)


if __name__ == "__main__":
    main(sys.argv[1])
