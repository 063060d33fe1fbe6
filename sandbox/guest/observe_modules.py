"""How long each module takes, alone and with what it calls, and what its class looks like.

Host time with a synchronisation at every boundary: it says where to look and is no measurement.
"""

from __future__ import annotations

import time
from collections import Counter

import torch

from .module_calls import ModuleCalls
from .observe_where import MAX_PATHS, plain_attributes
from .on_device import synchronize


class ModuleTimes(ModuleCalls):
    """The times of all modules that ran inside it."""

    def __init__(self, where):
        self.where = where
        self.calls, self.inclusive_s, self.self_s = Counter(), Counter(), Counter()  # by the id of a module
        self.total_s, self._stack = 0.0, []

    def before(self, module):
        synchronize()
        self._stack.append([time.perf_counter(), 0.0])

    def after(self, module, args, kwargs, result):
        synchronize()
        start, inner_s = self._stack.pop()
        spent_s = time.perf_counter() - start
        self.where.path(module)
        self.calls[id(module)] += 1
        self.inclusive_s[id(module)] += spent_s
        self.self_s[id(module)] += spent_s - inner_s
        if self._stack:
            self._stack[-1][1] += spent_s
        else:
            self.total_s += spent_s

    def share(self, modules):
        """Share of the time spent in these modules and what they call."""
        return sum(self.inclusive_s[id(m)] for m in modules) / self.total_s if self.total_s else 0.0


def describe_classes(seen):
    """One row for each class: where it is written, where it occurs, and its share of the time."""
    where, times, by_class = seen.where, seen.times, {}
    for path, module in where.modules.values():
        by_class.setdefault(type(module), []).append((path, module))
    total_s = times.total_s or 1.0
    rows = []
    for cls, found in by_class.items():
        modules, first = [module for _, module in found], found[0][1]
        rows.append(
            {
                **where.describe_class(cls),
                "paths": [path for path, _ in found[:MAX_PATHS]],
                "count": len(found),
                "calls": sum(times.calls[id(m)] for m in modules),
                "parameters": sum(p.numel() for m in modules for p in m.parameters(recurse=False)),
                "inclusive_share": sum(times.inclusive_s[id(m)] for m in modules) / total_s,
                "self_share": sum(times.self_s[id(m)] for m in modules) / total_s,
                "plain_attributes": plain_attributes(first),
                "children": {n: type(c).__qualname__ for n, c in list(first.named_children())[:MAX_PATHS]},
                "configured": cls.__init__ is not torch.nn.Module.__init__,
                "hooked": any(m._forward_hooks or m._forward_pre_hooks for m in modules),
            }
        )
    return sorted(rows, key=lambda r: -r["self_share"])
