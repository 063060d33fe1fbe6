#!/usr/bin/env python3
"""Is CANDIDATE.py faster than BASE.py? `python paired.py BASE.py CANDIDATE.py > result.json` (Linux, Python 3.10).

Each file has `build()`, which returns a callable, and `inputs(seed)`, which returns its arguments as a tuple or a
dict: the declared form of a Ratchet entry. `mode = "training"` leaves gradients and training mode on.

A restart starts a fresh process for each side and times calls in turns (A B B A ...) by this process's clock, one side
stopped while the other runs. It gives one number, the log ratio of the medians. First comes BASE against itself, 12
restarts or 30, for the noise floor; then BASE against CANDIDATE, looked at after 6 and 12 restarts (`--most 30`: and
30). The rule is that of Ratchet's tools/judging/accept.py; where the two differ, that file is right.

It protects from noise, and from nothing else. It believes a worker that says it is done; of outputs it compares types
and shapes, never values; it knows one shape and one state dict; both sides share user id, files and compile caches. A
candidate that remembers results, answers before it has computed, slows its neighbour down or returns rubbish of the
right shape is "kept". For code that nobody has read there is Ratchet's referee (`agent run`).
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib.util
import json
import math
import os
import platform
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
LOOKS = {6: 1, 12: 2, 30: 8}  # restarts -> which smallest decides
INTERVAL = {6: 1, 12: 3, 30: 10}  # restarts -> which smallest and largest bound the interval
AA_LOOKS, AA_WIDE, MAX_HALF_WIDTH = (12, 30), 0.04, 0.05
FLOOR, BLOCK_NS = {"cpu": 0.02, "cuda": 0.01}, {"cpu": 7e7, "cuda": 3e7}
ROUNDS, MAX_CALLS, WARM_UP = 10, 20, 3
MALLOC = {"MALLOC_MMAP_THRESHOLD_": "33554432", "MALLOC_TRIM_THRESHOLD_": "4294967296", "MALLOC_TOP_PAD_": "67108864"}
EXCLUDED = "start, build(), the first calls with what they compile, warm-up, inputs(seed)"
Samples = list[list[list[int]]]  # nanoseconds by restart, side (BASE, CANDIDATE) and call


def log_ratios(samples: Samples, of: Any = median) -> list[float]:
    return [math.log(of(base) / of(candidate)) for base, candidate in samples]


def interval(logs: list[float]) -> dict[str, float]:
    """Speedups, above 1 is faster. Covers the median over restarts with 96.9 % at 6, 96.1 % at 12, 95.7 % at 30."""
    ordered, k = sorted(logs), INTERVAL.get(len(logs), 1)
    ends = {"ci_low": math.exp(ordered[k - 1]), "ci_high": math.exp(ordered[-k])}
    return {"median": math.exp(median(ordered)), **ends, "restarts": len(logs)}


def noise_floor(logs: list[float], device: str) -> tuple[float, str]:
    """Delta, and why this machine can prove nothing now; empty where it can."""
    low, high, floor = interval(logs)["ci_low"], interval(logs)["ci_high"], FLOOR[device]
    usable = low <= 1 + floor and high >= 1 - floor and high - low <= 2 * MAX_HALF_WIDTH
    return max(floor, abs(low - 1), abs(high - 1)), "" if usable else f"the same code measures {low:.3f} to {high:.3f}"


def look(logs: list[float], delta: float) -> str:
    """Raises: KeyError at a number of restarts that is no look."""
    ordered, k, bar = sorted(logs), LOOKS[len(logs)], math.log1p(delta)
    if ordered[k - 1] > bar:
        return "kept"
    if ordered[-k] < -bar:
        return "slower"
    return "neutral" if ordered[len(logs) // 2 - 1] < bar or len(logs) == max(LOOKS) else "continue"


class Side:
    """One worker process, in a session of its own."""

    def __init__(self, file: Path, cpus: list[int]) -> None:
        self.file, threads = file, dict.fromkeys(THREADS, str(len(cpus)))
        command = [sys.executable, __file__, "--worker", str(file), ",".join(map(str, cpus))]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env={**os.environ, **MALLOC, **threads},
            start_new_session=True,
        )

    def begin(self, request: str) -> None:
        assert self.process.stdin
        with contextlib.suppress(BrokenPipeError):  # finish() tells
            self.process.stdin.write(request + "\n")

    def finish(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline() or sys.exit(f"{self.file}: its process ended; what it said is above")

    def ask_ns(self, request: str) -> int:
        begun = time.perf_counter_ns()
        self.begin(request)
        self.finish()
        return time.perf_counter_ns() - begun


def restart(files: list[Path], cpus: list[int]) -> tuple[list[list[int]], dict[str, Any]]:
    """Nanoseconds of the timed calls of both sides, and what the first says of itself."""
    sides: list[Side] = []
    seed, used, times = random.randrange(1 << 30), [0, 0], list[list[int]]([[], []])

    def call_ns(index: int) -> int:
        used[index] += 1  # no input comes twice; both sides get the same ones
        sides[index].ask_ns(f"stage {seed + used[index]}")
        return sides[index].ask_ns("call")

    try:
        for file in files:
            sides.append(Side(file, cpus))
            sides[-1].begin(f"build {seed}")
        told = [json.loads(side.finish()) for side in sides]
        for what in ("inputs", "outputs"):
            if told[0][what] != told[1][what]:
                sys.exit(f"not the same {what}: {str(told[0][what])[:200]} and {str(told[1][what])[:200]}")
        warm = [[call_ns(index) for _ in range(WARM_UP)] for index in (0, 1)]
        calls = max(1, min(MAX_CALLS, round(BLOCK_NS[told[0]["device"]] / warm[0][-1])))
        for side in sides:
            side.ask_ns("collect")
            os.killpg(side.process.pid, signal.SIGSTOP)
        order = random.sample([0, 1], 2)
        for number in range(ROUNDS):
            for index in order if number % 2 == 0 else order[::-1]:
                os.killpg(sides[index].process.pid, signal.SIGCONT)
                call_ns(index)  # does not count: the other side has had the caches
                times[index] += [call_ns(index) for _ in range(calls)]
                os.killpg(sides[index].process.pid, signal.SIGSTOP)
        return times, told[0]
    finally:
        for side in sides:
            os.killpg(side.process.pid, signal.SIGKILL)
            side.process.communicate()


def form(value: Any, sums: bool) -> Any:
    """Types and shapes of all that is nested in a value; with `sums` something of the values as well."""
    if isinstance(value, dict):
        return {str(key): form(each, sums) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [form(each, sums) for each in value]
    if not hasattr(value, "shape"):
        return repr(value) if sums and isinstance(value, (int, float, str)) else type(value).__name__
    return f"{value.dtype}{list(value.shape)}" + (f" sum {float(value.sum())}" if sums else "")


def work(file: Path, cpus: str) -> None:
    """The worker's end: one line in, one line out."""
    os.sched_setaffinity(0, map(int, cpus.split(",")))
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what the file prints is no reply
    sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec and spec.loader, f"{file} is no Python file"
    module = sys.modules[file.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    built, torch, training = module.build(), sys.modules.get("torch"), getattr(module, "mode", "") == "training"
    if torch:
        torch.set_grad_enabled(training)
    if hasattr(built, "train"):
        built.train(training)
    arguments: Any = None
    held: list[Any] = []
    for request in sys.stdin:
        word, _, seed = request.strip().partition(" ")
        told: dict[str, Any] = {}
        if word in ("build", "stage"):
            held.clear()  # not while a call is timed
            arguments = module.inputs(int(seed))
            arguments = arguments if isinstance(arguments, (dict, list, tuple)) else (arguments,)
        if word in ("build", "call"):
            held.append(built(**arguments) if isinstance(arguments, dict) else built(*arguments))
        if word == "collect":
            gc.collect()  # after compiling one full collection is due, at some later call
        gpu = bool(torch and torch.cuda.is_initialized())
        if torch and gpu:
            torch.cuda.synchronize()
        if word == "build":
            told = {
                "inputs": form(arguments, sums=True),
                "outputs": form(held, sums=False),
                "device": "cuda" if gpu else "cpu",
                "python": platform.python_version(),
            }
            if torch:
                told |= {
                    "torch": torch.__version__,
                    "hip": torch.version.hip,
                    "threads": torch.get_num_threads(),
                    "gpu": torch.cuda.get_device_name() if gpu else None,
                }
        print(json.dumps(told), file=replies)


def main() -> None:
    parser = argparse.ArgumentParser(description="Is CANDIDATE.py faster than BASE.py?")
    parser.add_argument("files", type=lambda name: Path(name).resolve(), nargs=2, metavar="FILE.py")
    parser.add_argument("--most", type=int, default=12, choices=LOOKS, help="restarts to go to (default: 12)")
    parser.add_argument("--threads", type=int, default=1, help="threads of a worker, and its cores (default: 1)")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that restart() ends its workers
    cores = sorted(os.sched_getaffinity(0))
    cpus = cores[-min(given.threads, max(1, len(cores) - 1)) :]
    os.sched_setaffinity(0, set(cores) - set(cpus) or cores)
    machine: dict[str, Any] = {"platform": platform.platform(), "cores": len(cores), "timed_on": cpus, **MALLOC}

    def once(samples: Samples, files: list[Path]) -> None:
        times, told = restart(files, cpus)
        samples.append(times)
        machine.update(told)
        print(f"{files[1].name} {len(samples)}: {math.exp(log_ratios(samples)[-1]):.3f}", file=sys.stderr)

    aa, samples, verdict, why, delta, unusable = Samples(), Samples(), "continue", "", math.inf, ""
    for count in AA_LOOKS:
        while len(aa) < count and delta > AA_WIDE:
            once(aa, [given.files[0]] * 2)
        delta, unusable = noise_floor(log_ratios(aa), machine["device"])
    while verdict == "continue" and len(samples) < given.most:
        once(samples, given.files)
        verdict = look(log_ratios(samples), delta) if len(samples) in LOOKS else verdict
    if verdict == "continue":
        verdict, why = "undecided", f"{len(samples)} restarts leave it open"
    elif verdict == "kept" and median(log_ratios(samples, sum)) <= math.log1p(delta):
        verdict, why = "neutral", "most calls are faster, all of them together are not"
    elif verdict == "kept" and unusable:
        verdict, why = "inconclusive", unusable
    print(
        json.dumps(
            {
                "verdict": verdict,
                "why": why,
                "speedup": interval(log_ratios(samples)),
                "floor": delta,
                "aa": interval(log_ratios(aa)),
                "by_sums": interval(log_ratios(samples, sum)),
                "excluded": EXCLUDED,
                "synchronised": "after each call",
                "files": [*map(str, given.files)],
                "machine": machine,
                "samples_ns": {"aa": aa, "comparison": samples},
            }
        )
    )


if __name__ == "__main__":
    work(Path(sys.argv[2]), sys.argv[3]) if sys.argv[1:2] == ["--worker"] else main()
