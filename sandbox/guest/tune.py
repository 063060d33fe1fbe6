"""The tuner: run a tree's callable, and time what each kernel of ours in it takes with other options of its launch.

A kernel file of ours (`ratchet_ops/*.py` in the tree) says what may be tried in CHOICES; its `_run…` functions ask its
TUNED for the options. Times from here are hints; the referee judges what is made of them.
"""

from __future__ import annotations

import os
import sys
import time

import torch

from .on_device import synchronize
from .repeated import Repeating

PACKAGE = "ratchet_ops"
MOST_LAUNCHES = 32  # different ones, of all kernels
WAVES_PER_EU = (1, 2, 3, 4)
WARM_UP, RUNS = 3, 15
FLUSH_BYTES = 512 << 20  # twice what the largest cache holds (256 MiB): inputs come from memory, as in a large model


class Tuner(Repeating):
    def op_tune(self, cases):
        """`cases` as the observer's. Returns {"device", "launches": [{"file", "run", "rows", "columns", "rule_us",
        "tried": [{"choice", "us" (None where it fails), "spills"}]}]}.
        """
        launches = {}
        with torch.no_grad(), torch.compiler.set_stance("force_eager"):
            for case in cases:
                self._stage(case)
                self._run()  # whatever is made at the first call
                modules = [_Kernels(module) for module in _ours()]
                try:
                    self._run_again()
                finally:
                    for each in modules:
                        each.stop()
                for each in modules:
                    for key, arguments in each.launches.items():
                        if len(launches) < MOST_LAUNCHES:
                            launches.setdefault((each.module.__name__, *key), (each.module, arguments))
            spills = {}
            found = [
                self._tried(module, *key, arguments, spills) for (_, *key), (module, arguments) in launches.items()
            ]
        return {"device": _device(), "launches": found}

    def _tried(self, module, name, rows, columns, arguments, spills):
        run, before = getattr(module, name), module.TUNED
        file = os.path.relpath(getattr(module, "__file__", None) or os.devnull, self.tree)
        try:
            module.TUNED = type(before)({}, "")
            rule_us = _time_us(lambda: run(*arguments))
            tried = _Choices(module, name, (rows, columns), arguments, spills).all()
        finally:
            module.TUNED = before
        return {"file": file, "run": name, "rows": rows, "columns": columns, "rule_us": rule_us, "tried": tried}


def _ours():
    packages = [name for name, module in list(sys.modules.items()) if f".{name}".endswith(f".{PACKAGE}") and module]
    found = {}
    for name, module in list(sys.modules.items()):
        # a table of an earlier version of these files is a plain dict
        if name.rpartition(".")[0] in packages and hasattr(getattr(module, "TUNED", None), "options"):
            found[name] = module
    return found.values()


class _Kernels:
    """Notes what the `_run…` functions of a module are called with, by (function, rows, columns)."""

    def __init__(self, module):
        self.module, self.launches, self.size = module, {}, None
        self.runs = {name: f for name, f in vars(module).items() if name.startswith("_run") and callable(f)}
        self.tuned, module.TUNED = module.TUNED, self
        for name, run in self.runs.items():
            setattr(module, name, self._noting(name, run))

    def options(self, kernel, rows, columns, rule):
        self.size = rows, columns
        return self.tuned.options(kernel, rows, columns, rule)

    def _noting(self, name, run):
        def noting(*arguments):
            self.size = None
            out = run(*arguments)
            if self.size is not None:
                self.launches.setdefault((name, *map(int, self.size)), arguments)
            return out

        return noting

    def stop(self):
        self.module.TUNED = self.tuned
        for name, run in self.runs.items():
            setattr(self.module, name, run)


class _Choices:
    """One launch with the options that are tried. `spills` is what is known of kernels that are compiled already."""

    def __init__(self, module, name, size, arguments, spills):
        self.module, self.name, self.size, self.spills = module, name, size, spills
        self.run = lambda: getattr(module, name)(*arguments)
        self.kernels = [value for value in vars(module).values() if hasattr(value, "device_caches")]

    def all(self):
        """The module's own, and with the fastest of them what only AMD's compiler takes."""
        tried = [self._one(choice) for choice in self.module.CHOICES]
        right = [each for each in tried if each["us"] is not None]
        if torch.version.hip is not None and right:
            fastest = min(right, key=lambda each: each["us"])["choice"]
            tried += [self._one({**fastest, "waves_per_eu": number}) for number in WAVES_PER_EU]
        return tried

    def _one(self, choice):
        self.module.TUNED = type(self.module.TUNED)({self.size: choice}, _device())
        known = _compiled(self.kernels)
        try:
            spent_us = _time_us(self.run)
        except Exception:  # what cannot be compiled or launched so is no choice
            spent_us = None
        new = [kernel for key, kernel in _compiled(self.kernels).items() if key not in known]
        compiled = self.module.__name__, self.name, self.size[1], tuple(choice.items())
        if new:
            self.spills[compiled] = max(map(_spills, new))
        return {"choice": dict(choice), "us": spent_us, "spills": self.spills.get(compiled, 0)}


def _compiled(kernels):
    """What has been compiled of these kernels, by identity."""
    found = {}
    for kernel in kernels:
        for caches in kernel.device_caches.values():
            found.update({id(compiled): compiled for compiled in caches[0].values()})
    return found


def _spills(kernel):
    return int(getattr(kernel, "n_spills", 0) or 0)


def _time_us(run):
    """The median. On a GPU by events, each run after the caches were filled with something else."""
    for _ in range(WARM_UP):
        run()
    synchronize()
    if not torch.cuda.is_initialized():
        return sorted(_host_us(run) for _ in range(RUNS))[RUNS // 2]
    flush, spent = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda"), []
    for _ in range(RUNS):
        flush.zero_()
        begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begun.record()
        run()
        ended.record()
        spent.append((begun, ended))
    synchronize()
    return sorted(begun.elapsed_time(ended) * 1e3 for begun, ended in spent)[RUNS // 2]


def _host_us(run):
    begun = time.perf_counter()
    run()
    return (time.perf_counter() - begun) * 1e6


def _device():
    return torch.cuda.get_device_name() if torch.cuda.is_initialized() else "cpu"
