"""Work whose result depends on no input and no weight, and values that the host reads back or sends to a device.

A constant is reported where it is made, with every frame of the target above it: who rewrites it decides how far up.
"""

from __future__ import annotations

from .observe_rows import Rows


def found(seen):
    """Operations whose operands all come from shapes, by place. "mutated": written to after data had used it."""
    rows = Rows(seen)
    for trace, op in seen.ops():
        if not op.frames or any(trace.flags(tag) for tag in (*op.outs, *op.operands())):
            continue
        row = rows.add(op.frames, op.frames, op.seconds, mutated=False, operations=set())
        row["mutated"] |= any(_changed_after_use(trace, tag) for tag in op.outs)
        row["operations"].add(op.name)
    return rows.table(longest_first=True)


def _changed_after_use(trace, tag):
    value = trace.values[tag]
    changes = trace.mutated.get(value.root, ())
    if not changes or not value.consumed:
        return False
    first = min((op.index for op in trace.consumers(tag) if any(trace.flags(t) for t in op.operands())), default=None)
    return first is not None and max(changes) > first


def host_reads(seen):
    """Places where Python waits for a value of a tensor: they stop the device and break graphs."""
    return _passed_on(seen, lambda op: op.read)


def host_copies(seen):
    """Places where values go from the host to a device, which cannot be recorded."""
    return _passed_on(seen, lambda op: op.sent)


def _passed_on(seen, tags_of):
    """ "fixed": whether none of what goes depends on an input, a weight or anything random."""
    rows = Rows(seen)
    for trace in seen.traces:
        for op in trace.ops:
            if (tags := tags_of(op)) and op.frames:
                row = rows.add((op.name, op.frames[:1]), op.frames, op.seconds, operation=op.name, fixed=True)
                row["fixed"] &= not any(trace.flags(tag) for tag in tags)
    return rows.table()
