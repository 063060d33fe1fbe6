"""Work whose result depends on no input and no weight, and values that the host reads back.

A constant is reported where it is made, with every frame of the target above it: who rewrites it decides how far up.
"""

from __future__ import annotations


def found(traces, where, total_s):
    """Operations whose operands all come from shapes, by place. "mutated": written to after data had used it."""
    rows = {}
    for trace in traces:
        for op in trace.ops:
            if not op.outs or not op.frames or any(trace.flags(tag) for tag in (*op.outs, *op.operands())):
                continue
            row = rows.setdefault(op.frames, {"count": 0, "seconds": 0.0, "mutated": False, "operations": set()})
            row["count"] += 1
            row["seconds"] += op.seconds
            row["mutated"] |= any(_changed_after_use(trace, tag) for tag in op.outs)
            row["operations"].add(op.name)
    return [
        {
            "frames": where.describe_frames(frames),
            "count": row["count"],
            "share": row["seconds"] / total_s,
            "mutated": row["mutated"],
            "operations": sorted(row["operations"])[:16],
        }
        for frames, row in sorted(rows.items(), key=lambda item: -item[1]["seconds"])
    ]


def _changed_after_use(trace, tag):
    value = trace.values[tag]
    changes = trace.mutated.get(value.root, ())
    if not changes or not value.consumed:
        return False
    first = min((op.index for op in trace.consumers(tag) if any(trace.flags(t) for t in op.operands())), default=None)
    return first is not None and max(changes) > first


def host_reads(traces, where):
    """Places where Python waits for a value of a tensor: they stop the device and break graphs."""
    rows = {}
    for trace in traces:
        for op in trace.ops:
            if op.read and op.frames:
                row = rows.setdefault((op.name, op.frames[:1]), {"count": 0, "frames": op.frames, "fixed": True})
                row["count"] += 1
                row["fixed"] &= not any(trace.flags(tag) for tag in op.read)
    return [
        {
            "operation": name,
            "fixed": row["fixed"],
            "frames": where.describe_frames(row["frames"]),
            "count": row["count"],
        }
        for (name, _), row in rows.items()
    ]
