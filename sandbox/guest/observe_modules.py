"""How long each module takes, alone and with what it calls, and what its class looks like.

Host time with a synchronisation at every boundary: it says where to look and is no measurement.
"""

from __future__ import annotations

import time

import torch

from .module_calls import ModuleCalls
from .observe_where import MAX_PATHS, plain_attributes
from .on_device import synchronize


class ModuleTimes:
    """A context manager; the times of all modules that ran inside it."""

    def __init__(self, where):
        self.where = where
        self.calls, self.inclusive_s, self.self_s = {}, {}, {}
        self.total_s, self._stack, self._called = 0.0, [], ModuleCalls(self._before, self._after)

    def __enter__(self):
        self._called.__enter__()
        return self

    def __exit__(self, *error):
        self._called.__exit__(*error)

    def _before(self, module):
        synchronize()
        self._stack.append([module, time.perf_counter(), 0.0])

    def _after(self, module, *_):
        synchronize()
        _, start, inner_s = self._stack.pop()
        spent_s = time.perf_counter() - start
        key = id(module)
        self.where.path(module)
        self.calls[key] = self.calls.get(key, 0) + 1
        self.inclusive_s[key] = self.inclusive_s.get(key, 0.0) + spent_s
        self.self_s[key] = self.self_s.get(key, 0.0) + spent_s - inner_s
        if self._stack:
            self._stack[-1][2] += spent_s
        else:
            self.total_s += spent_s

    def share(self, modules):
        """Share of the time spent in these modules and what they call."""
        return sum(self.inclusive_s.get(id(m), 0.0) for m in modules) / self.total_s if self.total_s else 0.0


def describe_classes(where, times):
    """One row for each class: where it is written, where it occurs, and its share of the time."""
    rows = {}
    for path, module in where.modules.values():
        row = rows.setdefault(type(module), {"modules": [], "paths": []})
        row["modules"].append(module)
        row["paths"].append(path)
    total_s = times.total_s or 1.0
    described = []
    for cls, row in rows.items():
        ids = [id(m) for m in row["modules"]]
        described.append(
            {
                **where.describe_class(cls),
                "paths": row["paths"][:MAX_PATHS],
                "count": len(row["paths"]),
                "calls": sum(times.calls.get(i, 0) for i in ids),
                "parameters": sum(p.numel() for m in row["modules"] for p in m.parameters(recurse=False)),
                "inclusive_share": sum(times.inclusive_s.get(i, 0.0) for i in ids) / total_s,
                "self_share": sum(times.self_s.get(i, 0.0) for i in ids) / total_s,
                "plain_attributes": plain_attributes(row["modules"][0]),
                "children": {n: type(c).__qualname__ for n, c in list(row["modules"][0].named_children())[:MAX_PATHS]},
                "configured": cls.__init__ is not torch.nn.Module.__init__,
                "hooked": any(m._forward_hooks or m._forward_pre_hooks for m in row["modules"]),
            }
        )
    return sorted(described, key=lambda r: -r["self_share"])
