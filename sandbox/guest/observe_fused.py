"""Runs of small operations that one kernel can do: a sum before its norm, rotary embeddings, the top of a softmax.

Each is looked for in what the operations were given, and all of it in one function, so that one place can be rewritten.
"""

from __future__ import annotations

import torch

from .observe_rows import Rows

_SLICES = frozenset(["getitem", "chunk", "split", "narrow", "unbind", "select", "tensor_split"])


def add_norms(seen):
    """a + b, given to a norm that its function calls."""
    rows = Rows(seen)
    for trace, call in seen.calls():
        cls = type(call.module)
        known = seen.norms.formula(cls)
        added = None if known is None else _added(trace, call)
        if added is None or str(trace.values[added.outs[0]].dtype) != f"torch.{known['dtype']}":
            continue  # its numbers were seen in another
        rows.add(
            (call.frames, added.frames[0], call.attribute),
            call.frames,
            added.seconds + call.seconds(trace),
            **{**known, "class": f"{cls.__module__}.{cls.__qualname__}"},
            attribute=call.attribute,
            add_line=added.frames[0][1],
            hooked=bool(call.module._forward_hooks or call.module._forward_pre_hooks),
        )
    return rows.table()


def _added(trace, call):
    """The addition of two tensors of one shape whose sum is what a call was given first."""
    for op in trace.ops[call.start : call.end]:
        for tag in op.operands():
            made = trace.producer(tag)
            if made is None or made.index >= call.start or made.name != "add" or not made.frames:
                continue
            operands = [trace.values[t] for t in made.operands()]
            alike = len(operands) == 2 and len({(v.shape, v.dtype) for v in (*operands, trace.values[tag])}) == 1
            return made if alike and made.frames[0][0] is call.frames[0][0] else None
    return None


def rotary(seen):
    """x * cos + cat(-x2, x1) * sin, where x1 and x2 are the halves of x."""
    rows = Rows(seen)
    for trace, op in seen.ops("add"):
        parts = _turned(trace, op) if op.frames else None
        if parts is not None:
            value, seconds = trace.values[op.outs[0]], op.seconds + sum(part.seconds for part in parts)
            dtype = str(value.dtype).removeprefix("torch.")
            rows.add(op.frames, op.frames, seconds, shape=list(value.shape), dtype=dtype)
    return rows.table()


def _turned(trace, op):
    """The operations that a rotary embedding is made of, besides its last addition."""
    made = [trace.producer(tag) for tag in op.operands()]
    if len(made) != 2 or any(m is None or m.name != "mul" for m in made):
        return None
    for plain, turned in (made, made[::-1]):
        for tag in turned.operands():
            joined = trace.producer(tag)
            if joined is None or joined.name not in ("cat", "concat", "stack") or len(joined.operands()) != 2:
                continue
            negated, first = trace.producer(joined.operands()[0]), trace.producer(joined.operands()[1])
            if negated is None or negated.name not in ("neg", "__neg__", "negative") or first is None:
                continue
            roots = {trace.values[t].root for t in (negated.operands()[0], joined.operands()[1])}
            of = [t for t in plain.operands() if trace.values[t].root in roots]
            last = trace.values[joined.operands()[1]].shape[-1:]
            if of and len(roots) == 1 and trace.values[of[0]].shape[-1:] == (2 * last[0],) and first.name in _SLICES:
                return plain, turned, joined, negated
    return None


def topk(seen):
    """topk over the last dimension of a softmax in float32 that nothing else reads."""
    rows = Rows(seen)
    for trace, op in seen.ops("topk"):
        made = trace.producer(op.operands()[0]) if op.operands() and op.frames and len(op.outs) == 2 else None
        if made is None or made.name != "softmax" or trace.consumers(made.outs[0]) != [op]:
            continue
        before, after = trace.values[made.outs[0]], trace.values[op.outs[0]]
        same = made.frames[:1] and made.frames[0][0] is op.frames[0][0]
        if same and before.dtype == torch.float32 and before.shape[:-1] == after.shape[:-1]:
            shape, taken = list(before.shape), after.shape[-1]
            rows.add(op.frames, op.frames, op.seconds + made.seconds, shape=shape, taken=taken)
    return rows.table()


def activation_of(op):
    """The activation that an operation computes, as all tables name it ("gelu_tanh" is GELU by tanh), or None."""
    if op.name == "gelu":
        return {"none": "gelu", "tanh": "gelu_tanh"}.get(str(op.kwargs.get("approximate", "none")))
    return op.name if op.name in ("relu", "silu") else None
