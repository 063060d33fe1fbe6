"""The profiler's guest: run a tree's callable under torch.profiler and leave the trace behind.

It proposes nothing, and reads nothing of what it wrote: that is for the host. Calls and modules are marked in the trace
by annotations of ours; `tools/profiler/trace.py` reads them.
"""

from __future__ import annotations

import torch
import torch._dynamo  # before the target is on the path: it needs cProfile, and a target may have a profile.py
from torch.profiler import ProfilerActivity, profile, record_function

from .module_calls import ModuleCalls
from .observe_where import Where
from .on_device import synchronize
from .repeated import Repeating

MARK = "ratchet|"
WARM_UP = 3


class Profiler(Repeating):
    def op_profile(self, cases, calls, trace):
        """Profile `cases`, each {"path", "phase"?, "constants"?}, so many calls of each; the trace goes to `trace`.

        Returns the latency of a call of each case without the profiler, in µs, the median of `calls`.
        """
        call_us = []
        for case in cases:
            self._stage(case)
            for _ in range(WARM_UP):
                self._run_again()
            call_us.append(self._time(calls))
        where = Where(self.tree, self.built)
        on_gpu = torch.cuda.is_available() and torch.cuda.is_initialized()
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
        # a mark inside compiled code would break it up: what is profiled then would be something else
        marks = ModuleMarks(where if torch._dynamo.utils.counters["frames"]["ok"] == 0 else None)
        with marks:
            self._mark(cases, 1)  # what a first marked call compiles again is not to be profiled
            synchronize()
            with profile(activities=activities, record_shapes=True) as seen:
                self._mark(cases, calls)
                synchronize()
        seen.export_chrome_trace(trace)
        return {"call_us": call_us, "modules": marks.where is not None}

    def op_repeat(self, cases, calls):
        """Only the calls, for a tool that looks on from outside; what a reset does is among what it sees."""
        for case in cases:
            self._stage(case)
            for _ in range(calls):
                self._run_again()

    def _mark(self, cases, calls):
        number = 0
        for case in cases:
            for _ in range(calls):
                self._stage(case)
                with record_function(MARK + f"call|{number}"):
                    self._run()
                number += 1


class ModuleMarks(ModuleCalls):
    """Marks in the trace which module is running; a context manager. Without a `where` it marks nothing."""

    def __init__(self, where):
        self.where = where
        self._names, self._counts = {}, {}
        self._open = []

    def __enter__(self):
        return self if self.where is None else super().__enter__()

    def __exit__(self, *error):
        if self.where is not None:
            super().__exit__(*error)

    def before(self, module):
        mark = record_function(self._name(module))
        mark.__enter__()
        self._open.append(mark)

    def after(self, module, args, kwargs, result):
        self._open.pop().__exit__(None, None, None)

    def _name(self, module):
        name = self._names.get(id(module))
        if name is None:
            about = self.where.describe_class(type(module))
            kind = str(about["class"]).replace("|", "/")
            self._counts[kind] = number = self._counts.get(kind, 0) + 1
            place = f"{about.get('file') or ''}:{about.get('line') or ''}".strip(":").replace("|", "/")
            name = self._names[id(module)] = MARK + f"module|{kind}|{place}|{number}"
        return name
