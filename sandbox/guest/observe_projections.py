"""Layers that could share one matrix multiplication, and activations that gate another tensor.

Both are found by what they were given: the same tensor, at the same version, not by their names. Layers are together
where one call of their parent called each of them once.
"""

from __future__ import annotations

import torch

from .observe_fused import activation_of
from .observe_rows import Rows
from .observe_where import MAX_PATHS


def groups(seen):
    """nn.Linear below one parent that received the same tensor, by the parent's class and the names of the layers."""
    rows, where = Rows(seen), seen.where
    for trace in seen.traces:
        for (parent, *_), ops in _by_input(trace, where).items():
            names = tuple(dict.fromkeys(name for name, _, _ in ops))
            if len(names) < 2 or len(names) != len(ops):
                continue
            layers = [_describe_linear(name, layer) for name, layer, _ in ops]
            seconds, frames = sum(op.seconds for _, _, op in ops), ops[0][2].frames
            row = rows.add((type(parent), names), frames, seconds, names=list(names), layers=layers, parents={})
            row["parents"][id(parent)] = parent
            row["frames"] = row["frames"] or frames
    found = rows.table()
    for row in found:
        parents = list(row.pop("parents").values())
        row |= where.describe_class(type(parents[0]))
        row["count"], row["paths"] = len(parents), [where.path(parent) for parent in parents[:MAX_PATHS]]
    return found


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


def gated(seen):
    """act(a) * b: the activation's result is used once, in a product with another tensor of its shape."""
    rows = Rows(seen)
    for trace, op in seen.ops():
        activation = activation_of(op)
        product = _product(trace, op) if activation is not None else None
        if product is not None:
            facts = {"activation": activation, "shape": list(trace.values[op.outs[0]].shape)}
            row = rows.add((activation, product.frames[:1]), product.frames, op.seconds + product.seconds, **facts)
            row["attribute"] = seen.where.below(op.module, product.module) if op.module and product.module else ""
    return rows.table()


def _product(trace, op):
    users = trace.consumers(op.outs[0])
    if len(users) != 1 or users[0].name != "mul":
        return None
    tags = users[0].operands()
    if len(tags) != 2 or tags[0] == tags[1]:
        return None
    a, b = (trace.values[tag] for tag in tags)
    return users[0] if a.shape == b.shape and a.dtype == b.dtype else None
