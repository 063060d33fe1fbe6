"""The observer: run a tree's callable on staged inputs and say what happens in it, where, and for how long.

It proposes nothing and its times are no evidence: they only say where to look. What it returns is bounded, whatever
the model does.
"""

from __future__ import annotations

import time
from collections import defaultdict

import torch
import torch._dynamo  # before the target is on the path: it needs cProfile, and a target may have a profile.py
from torch.overrides import TorchFunctionMode

from . import (
    observe_again,
    observe_attention,
    observe_constants,
    observe_copies,
    observe_fused,
    observe_padding,
    observe_positions,
    observe_projections,
    overlay,
    tensors,
)  # fmt: skip
from .observe_modules import ModuleTimes, describe_classes
from .observe_norms import NormProbe
from .observe_ops import OpTimes
from .observe_trace import Trace
from .observe_where import Where
from .on_device import synchronize
from .worker import Worker

MAX_ROWS = 200  # of any one table
WITH_PLACES = (
    "linear_groups", "norms", "add_norms", "rotary", "topk", "activated", "gated", "attention", "repeats", "copies",
    "zeros", "constants", "positions", "again",
)  # fmt: skip


class _Looking(TorchFunctionMode):
    """Changes nothing. Recorded calls step aside for a mode, so that there are modules and operations to see."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class Observer(Worker):
    def op_observe(self, cases, calls=3):
        """Observe `cases`, each {"path", "phase"?, "constants"?}: staged arguments, as `op_stage` takes them.

        Shares are of the time of all cases together. Compiled and captured code is run op by op.
        """
        where = Where(self.tree, self.built)
        times, norms, traces = ModuleTimes(where), NormProbe(where), []
        ops, call_us, padding = OpTimes(), [], []
        with torch.compiler.set_stance("force_eager"):
            for case in cases:
                self._stage(case)
                self._run()
                call_us.append(self._time(self._run, calls))
                padding.append(self._padding(calls))
                with _Looking(), times, norms:
                    self._repeat(case, calls)
                with _Looking():
                    ops.add(lambda case=case: self._repeat(case, calls))
                self._stage(case)
                trace = Trace(where, self._inputs(), synchronize, self._constants(case))
                with trace:
                    self._run()
                traces.append(trace)
        report = _bounded(self._summary(where, times, norms, traces, ops, call_us))
        report["padding"] = [row for row in padding if row is not None]
        return {**report, "sources": overlay.sources(_libraries(report))}

    def _summary(self, where, times, norms, traces, ops, call_us):
        total_s = sum(trace.total_s for trace in traces) or 1.0
        return {
            "callable": where.describe_callable(self.built),
            "call_us": call_us,
            "classes": describe_classes(where, times),
            "ops": ops.table(),
            "linear_groups": observe_projections.groups(traces, where, total_s),
            "norms": norms.found(times),
            "add_norms": observe_fused.add_norms(traces, where, norms.formula, total_s),
            "rotary": observe_fused.rotary(traces, where, total_s),
            "topk": observe_fused.topk(traces, where, total_s),
            "activated": observe_fused.activated(traces, where, total_s),
            "gated": observe_projections.gated(traces, where, total_s),
            "attention": observe_attention.found(traces, where, total_s),
            "repeats": observe_copies.repeats(traces, where, total_s),
            "copies": observe_copies.copies(traces, where, total_s),
            "zeros": observe_copies.zeros(traces, where, total_s),
            "constants": observe_constants.found(traces, where, total_s),
            "positions": observe_positions.found(traces, where, total_s),
            "again": observe_again.found(traces, where, total_s),
            "host_reads": observe_constants.host_reads(traces, where),
            "truncated": any(trace.truncated for trace in traces),
        }

    def _stage(self, case):
        self.op_stage(case["path"], constants=tuple(case.get("constants", ())), phase=case.get("phase", ""))

    def _inputs(self):
        return tensors.flatten(self.arguments)[1]

    def _constants(self, case):
        named = self.arguments.items() if isinstance(self.arguments, dict) else enumerate(self.arguments)
        return tensors.flatten([item for name, item in named if name in case.get("constants", ())])[1]

    def _repeat(self, case, calls):
        for _ in range(calls):
            self._stage(case)
            self._run()

    def _time(self, run, calls):
        """Microseconds, the median."""
        seen = []
        for _ in range(calls):
            start = time.perf_counter()
            run()
            seen.append(time.perf_counter() - start)
        return sorted(seen)[len(seen) // 2] * 1e6

    def _padding(self, calls):
        def run(arguments):
            function = self.workload.method(self.phase, self.built)
            out = function(**arguments) if isinstance(arguments, dict) else function(*arguments)
            synchronize()
            return out

        def call(arguments):
            structure, flat = tensors.flatten(run(arguments))
            return structure, flat, self._time(lambda: run(arguments), calls)

        return observe_padding.probe(self.arguments, call)


def _libraries(report):
    """Library modules in which something was found, those with the largest shares first."""
    shares = defaultdict(float)
    for table in WITH_PLACES:
        for row in report[table]:
            places = [row] if "third_party" in row else row["frames"][:1]
            for place in places:
                if place["third_party"]:
                    shares[place["module"]] += row["share"]
    called = report["callable"]
    first = [called["module"]] if called["third_party"] and called["is_module"] else []
    return first + sorted(shares, key=lambda module: -shares[module])


def _bounded(report):
    for key, value in report.items():
        if isinstance(value, list) and len(value) > MAX_ROWS:
            report[key] = value[:MAX_ROWS]
            report["truncated"] = True
    return report
