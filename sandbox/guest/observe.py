"""The observer: run a tree's callable on staged inputs and say what happens in it, where, and for how long.

It proposes nothing and its times are no evidence: they only say where to look. What it returns is bounded, whatever
the model does. What cannot be made of what was seen is left empty, and a note says so.
"""

from __future__ import annotations

from collections import defaultdict

import torch
import torch._dynamo  # before the target is on the path: it needs cProfile, and a target may have a profile.py
from torch.overrides import TorchFunctionMode
from torch.profiler import ProfilerActivity, profile

from . import (
    observe_again,
    observe_attention,
    observe_constants,
    observe_copies,
    observe_fused,
    observe_padding,
    observe_projections,
    overlay,
    tensors,
)
from .observe_modules import ModuleTimes, describe_classes
from .observe_norms import NormProbe
from .observe_rows import Seen
from .observe_trace import Trace
from .observe_where import Where
from .on_device import synchronize
from .repeated import Repeating

MAX_ROWS, MAX_NOTES, MAX_OPS = 200, 64, 40  # of any one table, of all, of operations by time
WITH_PLACES = {
    "linear_groups": observe_projections.groups,
    "norms": lambda seen: seen.norms.found(seen.times),
    "add_norms": observe_fused.add_norms,
    "rotary": observe_fused.rotary,
    "topk": observe_fused.topk,
    "gated": observe_projections.gated,
    "attention": observe_attention.found,
    "repeats": observe_copies.repeats,
    "copies": observe_copies.copies,
    "zeros": observe_copies.zeros,
    "constants": observe_constants.found,
    "again": observe_again.found,
}
TABLES = {
    "classes": describe_classes,
    **WITH_PLACES,
    "host_reads": observe_constants.host_reads,
    "host_copies": observe_constants.host_copies,
}


class _Looking(TorchFunctionMode):
    """Changes nothing. Recorded calls step aside for a mode, so that there are modules and operations to see."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class OpTimes:
    """Device time by operation of several runs, from torch's own profiler; on a CPU the time of the CPU.

    An operation has only its name: categories are given later, to whoever reads it.
    """

    def __init__(self):
        self._times = {}  # name -> (self time in µs, calls)

    def add(self, run):
        activities = [ProfilerActivity.CPU]
        on_gpu = torch.cuda.is_available() and torch.cuda.is_initialized()
        if on_gpu:
            activities.append(ProfilerActivity.CUDA)
        with profile(activities=activities) as seen:
            run()
        for event in seen.key_averages():
            spent_us = event.self_device_time_total if on_gpu else event.self_cpu_time_total
            if spent_us > 0:
                old_us, old_count = self._times.get(event.key, (0.0, 0))
                self._times[event.key] = (old_us + spent_us, old_count + event.count)

    def table(self):
        """{"rows": [{"name", "share", "count"}], "other": share of what has no row}, the longest first."""
        total_us = sum(t for t, _ in self._times.values()) or 1.0
        ranked = sorted(self._times.items(), key=lambda item: -item[1][0])
        rows = [{"name": n[:200], "share": t / total_us, "count": c} for n, (t, c) in ranked[:MAX_OPS]]
        return {"rows": rows, "other": sum(t for _, (t, _) in ranked[MAX_OPS:]) / total_us}


class Observer(Repeating):
    def op_observe(self, cases, calls=3):
        """Observe `cases`, each {"path", "phase"?, "constants"?}: staged arguments, as `op_stage` takes them.

        Shares are of the time of all cases together. Compiled and captured code is run op by op.
        """
        where = Where(self.tree, self.built)
        times, norms, traces = ModuleTimes(where), NormProbe(where), []
        ops, call_us, padding, self._notes = OpTimes(), [], [], []
        with torch.compiler.set_stance("force_eager"):
            for case in cases:
                self._stage(case)
                self._run()
                call_us.append(self._time(calls))
                padding += self._made("padding", lambda: self._padding(calls))
                with _Looking(), times, norms:
                    self._repeat(case, calls)
                with _Looking():
                    ops.add(lambda case=case: self._repeat(case, calls))
                self._stage(case)
                trace = Trace(where, self._inputs(), synchronize, self._constants(case))
                with trace:
                    self._run()
                traces.append(trace)
        report = _bounded(self._summary(Seen(traces, where, times, norms), ops, call_us))
        report["padding"], report["notes"] = padding, list(dict.fromkeys(self._notes))[:MAX_NOTES]
        return {**report, "sources": overlay.sources(_libraries(report))}

    def _summary(self, seen, ops, call_us):
        return {
            "callable": seen.where.describe_callable(self.built, self.workload.called(self.built)),
            "call_us": call_us,
            "ops": ops.table(),
            **{name: self._made(name, lambda make=make: make(seen)) for name, make in TABLES.items()},
            "truncated": any(trace.truncated for trace in seen.traces),
        }

    def _made(self, table, make):
        """Rows of a table, each table by itself: what one of them does not expect leaves the others as they are."""
        try:
            return make()
        except Exception as error:  # of a value or a class of the target's that nobody thought of
            self._notes.append(f"the observer tells nothing of {table}: {type(error).__name__}: {error}"[:500])
            return []

    def _inputs(self):
        return tensors.flatten(self.arguments)[1]

    def _constants(self, case):
        named = self.arguments.items() if isinstance(self.arguments, dict) else enumerate(self.arguments)
        return tensors.flatten([item for name, item in named if name in case.get("constants", ())])[1]

    def _repeat(self, case, calls):
        for _ in range(calls):
            self._stage(case)
            self._run()

    def _padding(self, calls):
        def run(arguments):
            function = self.workload.method(self.phase, self.built)
            out = function(**arguments) if isinstance(arguments, dict) else function(*arguments)
            synchronize()
            return out

        def call(arguments):
            self._reset()
            structure, flat = tensors.flatten(run(arguments))
            return structure, flat, self._time(calls, lambda: run(arguments))

        row = observe_padding.probe(self.arguments, call)
        return [] if row is None else [row]


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
