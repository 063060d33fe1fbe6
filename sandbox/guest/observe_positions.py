"""Linear layers of whose result only some positions are used: `head(hidden)[:, -1]` multiplies all of them for one."""

from __future__ import annotations

MAX_KEPT = 0.5  # of the positions; with more of them there is little to gain


def found(traces, where, total_s):
    rows = {}
    for trace in traces:
        for op in trace.ops:
            kept, taken = _kept(trace, op)
            if taken is None:
                continue
            rank = len(trace.values[op.outs[0]].shape)
            row = rows.setdefault(taken.frames, {"count": 0, "seconds": 0.0, "rank": rank, "kept": 0.0})
            row["count"] += 1
            row["seconds"] += op.seconds * (1.0 - kept)
            row["kept"] = max(row["kept"], kept)
    return [
        {
            "frames": where.describe_frames(frames),
            "count": row["count"],
            "rank": row["rank"],
            "kept": row["kept"],
            "share": row["seconds"] / total_s,
        }
        for frames, row in rows.items()
    ]


def _kept(trace, op):
    """(the part of its positions that is used, the operation that takes them); (1, None) where all may be."""
    if op.name != "linear" or len(op.outs) != 1:
        return 1.0, None
    users = trace.consumers(op.outs[0])
    if len(users) != 1 or users[0].name != "getitem" or len(users[0].outs) != 1 or users[0].operands() != op.outs:
        return 1.0, None
    whole, taken = trace.values[op.outs[0]].shape, trace.values[users[0].outs[0]].shape
    if len(whole) < 2 or not taken or whole[-1] != taken[-1] or 0 in whole:
        return 1.0, None
    kept = _size(taken) / _size(whole)
    return (kept, users[0]) if kept <= MAX_KEPT else (1.0, None)


def _size(shape):
    size = 1
    for length in shape:
        size *= length
    return size
