"""Copies that need not be made: heads repeated in memory for attention, and copies that change nothing. Zeros that are
written over before anything reads them.

Whether a copy was needed is judged by what happened to it and to its source in this call.
"""

from __future__ import annotations

from .observe_attention import reaches_attention
from .observe_rows import Rows


def repeats(seen):
    """expand + reshape (or repeat_interleave) that copies heads, whose result goes into attention."""
    rows = Rows(seen)
    for trace, op in seen.ops("reshape", "contiguous", "flatten", "clone", "repeat_interleave"):
        factor = _spread(trace, op)
        if factor is not None and reaches_attention(trace, op.outs[0]):
            rows.add(op.frames, op.frames, op.seconds, factor=factor)
    return rows.table()


def _spread(trace, op):
    """How often this operation repeats each head, None when it does not."""
    operands = op.operands()
    if not operands or not op.copied:
        return None
    out, given = trace.values[op.outs[0]].shape, trace.values[operands[0]].shape
    if op.name == "repeat_interleave":
        return out[1] // given[1] if len(out) == len(given) == 4 and out[1] > given[1] > 0 else None
    before = trace.producer(operands[0])
    if before is None or before.name not in ("expand", "broadcast_to", "expand_as"):
        return None
    source = trace.values[before.operands()[0]].shape
    wide = trace.values[before.outs[0]].shape
    if len(source) != len(wide):
        return None
    # (batch, heads, 1, tokens, size): a head stands beside its repetitions, as fused attention expects it
    grown = [i for i, (w, s) in enumerate(zip(wide, source, strict=True)) if w != s]
    return wide[2] if grown == [2] and len(wide) == 5 and out[1] == wide[1] * wide[2] else None


def copies(seen):
    """Copies by place: how many changed nothing ("same"), how many copied, whether any copy was needed."""
    rows = Rows(seen)
    for trace, op in seen.ops("contiguous", "clone"):
        if not op.operands():
            continue
        facts = {"operation": op.name, "same": 0, "needed": False, "users": set()}
        row = rows.add((op.name, op.frames[:1]), op.frames, op.seconds, **facts)
        row["same"] += op.outs[0] == op.operands()[0]
        row["needed"] |= _needed(trace, op)
        row["users"] |= {user.name for user in trace.consumers(op.outs[0])}
    return rows.table()


def zeros(seen):
    """Tensors of zeros by place, all of which the next operation on them wrote to, whenever they were made."""
    rows = Rows(seen)
    for trace, op in seen.ops("zeros", "zeros_like", "new_zeros"):
        row = rows.add(op.frames[:1], op.frames, op.seconds, unread=True)
        row["unread"] &= _is_written_over(trace, op)
    return [row for row in rows.table() if row["unread"]]


def _is_written_over(trace, op):
    """As far as it can be told without the bounds of slices."""
    made = op.outs[0]
    root = trace.values[made].root
    for later in trace.ops[op.index + 1 :]:
        operands = later.operands()
        if not any(trace.values[tag].root == root for tag in operands):
            continue
        if later.changed != root or (later.name not in ("copy_", "__setitem__") and "out" not in later.kwargs):
            return False
        return sum(trace.values[tag].root == root for tag in operands) == 1  # what is written does not come from it
    return False


def _needed(trace, op):
    """A copy is needed when either side is written to afterwards."""
    roots = (trace.values[op.operands()[0]].root, trace.values[op.outs[0]].root)
    return any(index > op.index for root in roots for index in trace.mutated.get(root, ()))
