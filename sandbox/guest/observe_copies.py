"""Copies that need not be made: heads repeated in memory for attention, and copies that change nothing. Zeros that are
written over before anything reads them.

Whether a copy was needed is judged by what happened to it and to its source in this call.
"""

from __future__ import annotations

from .observe_attention import reaches_attention

_ZEROS = frozenset(["zeros", "zeros_like", "new_zeros"])
_WRITES = frozenset(["copy_", "__setitem__"])
_COPIES = frozenset(["contiguous", "clone"])


def repeats(traces, where, total_s):
    """expand + reshape (or repeat_interleave) that copies heads, whose result goes into attention."""
    rows = {}
    for trace in traces:
        for op in trace.ops:
            spread = _spread(trace, op)
            if spread is None or not reaches_attention(trace, op.outs[0]):
                continue
            row = rows.setdefault(op.frames, {"count": 0, "seconds": 0.0, "factor": spread})
            row["count"] += 1
            row["seconds"] += op.seconds
    return [
        {
            "frames": where.describe_frames(frames),
            "count": row["count"],
            "factor": row["factor"],
            "share": row["seconds"] / total_s,
        }
        for frames, row in rows.items()
    ]


def _spread(trace, op):
    """How often this operation repeats each head, None when it does not."""
    operands = op.operands()
    if not op.outs or not operands or not op.copied:
        return None
    out, given = trace.values[op.outs[0]].shape, trace.values[operands[0]].shape
    if op.name == "repeat_interleave":
        return out[1] // given[1] if len(out) == len(given) == 4 and out[1] > given[1] > 0 else None
    if op.name not in ("reshape", "contiguous", "flatten", "clone"):
        return None
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


def copies(traces, where, total_s):
    """Copies by place: how many changed nothing ("same"), how many copied, whether any copy was needed."""
    rows = {}
    for trace in traces:
        for op in trace.ops:
            if op.name not in _COPIES or not op.outs or not op.operands():
                continue
            key = (op.name, op.frames[:1])
            row = rows.setdefault(
                key, {"count": 0, "same": 0, "seconds": 0.0, "needed": False, "users": set(), "frames": op.frames}
            )
            row["count"] += 1
            row["same"] += op.outs[0] == op.operands()[0]
            row["seconds"] += op.seconds
            row["needed"] |= _needed(trace, op)
            row["users"] |= {user.name for user in trace.consumers(op.outs[0])}
    return [
        {
            "operation": name,
            "frames": where.describe_frames(row["frames"]),
            "count": row["count"],
            "same": row["same"],
            "needed": row["needed"],
            "users": sorted(row["users"])[:16],
            "share": row["seconds"] / total_s,
        }
        for (name, _), row in rows.items()
    ]


def zeros(traces, where, total_s):
    """Tensors of zeros by place, all of which the next operation on them wrote to, whenever they were made."""
    rows = {}
    for trace in traces:
        for op in trace.ops:
            if op.name not in _ZEROS or not op.outs:
                continue
            row = rows.setdefault(op.frames[:1], {"count": 0, "seconds": 0.0, "frames": op.frames, "unread": True})
            row["count"] += 1
            row["seconds"] += op.seconds
            row["unread"] &= _is_written_over(trace, op)
    return [
        {"frames": where.describe_frames(row["frames"]), "count": row["count"], "share": row["seconds"] / total_s}
        for row in rows.values()
        if row["unread"]
    ]


def _is_written_over(trace, op):
    """As far as it can be told without the bounds of slices."""
    made = op.outs[0]
    root = trace.values[made].root
    for later in trace.ops[op.index + 1 :]:
        operands = later.operands()
        if not any(trace.values[tag].root == root for tag in operands):
            continue
        if later.changed != root or (later.name not in _WRITES and "out" not in later.kwargs):
            return False
        return sum(trace.values[tag].root == root for tag in operands) == 1  # what is written does not come from it
    return False


def _needed(trace, op):
    """A copy is needed when either side is written to afterwards."""
    roots = (trace.values[op.operands()[0]].root, trace.values[op.outs[0]].root)
    return any(index > op.index for root in roots for index in trace.mutated.get(root, ()))
