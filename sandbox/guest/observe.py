"""The observer: run a tree's callable on staged inputs and say what happens in it, where, and for how long.

It proposes nothing and its times are no evidence: they only say where to look. What it returns is bounded, whatever
the model does. What cannot be made of what was seen is left empty, and a note says so.
"""

from __future__ import annotations

from collections import Counter, defaultdict

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

MAX_ROWS, MAX_NOTES = 200, 64  # of any one table, of all
LONG_US = 1e5  # where a case takes longer, modules are timed once: it may be a sequence of calls
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
    "ops": lambda seen: _operations(seen),
    "classes": describe_classes,
    **WITH_PLACES,
    "host_reads": observe_constants.host_reads,
    "host_copies": observe_constants.host_copies,
}


class _Looking(TorchFunctionMode):
    """Changes nothing. Recorded calls step aside for a mode, so that there are modules and operations to see."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class Observer(Repeating):
    def op_observe(self, cases, calls=3):
        """Observe `cases`, each {"path", "phase"?, "constants"?}: staged arguments, as `op_stage` takes them.

        Shares are of the time of all cases together. Compiled and captured code is run op by op.
        """
        where = Where(self.tree, self.built)
        times, norms, traces = ModuleTimes(where), NormProbe(where), []
        call_us, padding, self._notes = [], [], []
        with torch.compiler.set_stance("force_eager"):
            for case in cases:
                self._stage(case)
                self._run()
                call_us.append(self._time(calls))
            often = calls if max(call_us) < LONG_US else 1
            for case in cases:
                self._stage(case)
                padding += self._made("padding", lambda: self._padding(often))
                with _Looking(), times, norms:
                    self._repeat(case, often)
                self._stage(case)
                trace = Trace(where, self._inputs(), synchronize, self._constants(case))
                with trace:
                    self._run()
                traces.append(trace)
        report = _bounded(self._summary(Seen(traces, where, times, norms), call_us))
        report["padding"], report["notes"] = padding, list(dict.fromkeys(self._notes))[:MAX_NOTES]
        return {**report, "sources": overlay.sources(_libraries(report))}

    def _summary(self, seen, call_us):
        return {
            "callable": seen.where.describe_callable(self.built, self.workload.called(self.built)),
            "call_us": call_us,
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


def _operations(seen):
    """Those that torch was asked for, by name, with what they call."""
    spent_s, count = Counter(), Counter()
    for op in (op for trace in seen.traces for op in trace.ops):
        spent_s[op.name] += op.seconds
        count[op.name] += 1
    total_s = sum(spent_s.values()) or 1.0
    return [{"name": n[:200], "share": s / total_s, "count": count[n]} for n, s in spent_s.most_common()]


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
