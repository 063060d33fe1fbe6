"""Layers that could share one matrix multiplication, and activations that gate another tensor.

Both are found by what they were given: the same tensor, at the same version, not by their names. Layers are together
where one call of their parent called each of them once.
"""

from __future__ import annotations

import torch

from .observe_fused import activation_of
from .observe_where import MAX_PATHS


def groups(traces, where, total_s):
    """nn.Linear below one parent that received the same tensor, by the parent's class and the names of the layers."""
    rows = {}
    for trace in traces:
        for (parent, *_), ops in _by_input(trace, where).items():
            names = tuple(dict.fromkeys(name for name, _, _ in ops))
            if len(names) < 2 or len(names) != len(ops):
                continue
            row = rows.setdefault(
                (type(parent), names), {"parents": {}, "seconds": 0.0, "layers": None, "frames": None}
            )
            row["parents"][id(parent)] = parent
            row["seconds"] += sum(op.seconds for _, _, op in ops)
            row["frames"] = row["frames"] or ops[0][2].frames
            row["layers"] = row["layers"] or [_describe_linear(name, layer) for name, layer, _ in ops]
    return [
        {
            **where.describe_class(cls),
            "names": list(names),
            "layers": row["layers"],
            "paths": [where.path(p) for p in list(row["parents"].values())[:MAX_PATHS]],
            "count": len(row["parents"]),
            "frames": where.describe_frames(row["frames"]),
            "share": row["seconds"] / total_s,
        }
        for (cls, names), row in rows.items()
    ]


def _by_input(trace, where):
    by_path = dict(where.modules.values())
    calls, found = {}, {}
    for call in trace.calls:
        calls.setdefault(id(call.module), []).append(call)
    for op in trace.ops:
        if op.name != "linear" or op.module is None or not isinstance(op.module, torch.nn.Linear):
            continue
        parent_path, _, name = where.path(op.module).rpartition(".")
        parent = by_path.get(parent_path)
        operands = op.operands()
        if parent is None or not operands:
            continue
        # a tensor changed in place between two calls is another input
        changes = len([i for i in trace.mutated.get(trace.values[operands[0]].root, ()) if i < op.index])
        within = _call_around(calls, by_path, parent_path, op)
        found.setdefault((parent, within, operands[0], changes), []).append((name, op.module, op))
    return found


def _call_around(calls, by_path, path, op):
    """Where the call begins and ends of the module at a path, or of the next one above that is called; None for none.

    A list of modules is not called itself.
    """
    while True:
        # they are in the order in which they ended: of a module that calls itself, the innermost is the first
        for call in calls.get(id(by_path.get(path)), ()):
            if call.start <= op.index < call.end:
                return call.start, call.end
        if not path:
            return None
        path = path.rpartition(".")[0]


def _describe_linear(name, layer):
    return {
        "name": name,
        "in_features": layer.in_features,
        "out_features": layer.out_features,
        "bias": layer.bias is not None,
        "plain": type(layer) is torch.nn.Linear,
        "dtype": str(layer.weight.dtype)[6:],
        "hooked": bool(layer._forward_hooks or layer._forward_pre_hooks),
    }


def gated(traces, where, total_s):
    """act(a) * b: the activation's result is used once, in a product with another tensor of its shape."""
    rows = {}
    for trace in traces:
        for op in trace.ops:
            activation = activation_of(op) if op.outs else None
            product = _product(trace, op) if activation is not None else None
            if product is None:
                continue
            key = (activation, product.frames[:1])
            row = rows.setdefault(key, {"count": 0, "seconds": 0.0, "op": op, "frames": product.frames, "trace": trace})
            row["count"] += 1
            row["seconds"] += op.seconds + product.seconds
            row["attribute"] = where.below(op.module, product.module) if op.module and product.module else ""
    return [
        {
            "activation": name,
            "attribute": row["attribute"],
            "frames": where.describe_frames(row["frames"]),
            "count": row["count"],
            "share": row["seconds"] / total_s,
            "shape": list(row["trace"].values[row["op"].outs[0]].shape),
        }
        for (name, _), row in rows.items()
    ]


def _product(trace, op):
    users = trace.consumers(op.outs[0])
    if len(users) != 1 or users[0].name != "mul":
        return None
    tags = users[0].operands()
    if len(tags) != 2 or tags[0] == tags[1]:
        return None
    a, b = (trace.values[tag] for tag in tags)
    return users[0] if a.shape == b.shape and a.dtype == b.dtype else None
