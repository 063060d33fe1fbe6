"""Modules that compute what they have computed before: of the same tensors twice in a call, or of constants in each.

What a call depends on is what its operations read from before it, whatever its arguments were. One that changes
something outside, draws random numbers, or whose result is written to afterwards, is none.
"""

from __future__ import annotations

from .observe_trace import CONSTANT, PARAMETER, RANDOM


def found(traces, where, total_s):
    """By the place of the call and the module that is called; "share" is what need not be computed."""
    rows = {}
    for trace in traces:
        for call, constant in _outermost(_again(trace)):
            key = call.frames, call.attribute
            row = rows.setdefault(key, {"class": type(call.module).__qualname__, "count": 0, "seconds": 0.0})
            row["count"] += 1
            row["seconds"] += sum(op.seconds for op in trace.ops[call.start : call.end])
            row["constant"] = constant
    return [
        {
            "class": row["class"],
            "attribute": attribute,
            "constant": row["constant"],
            "count": row["count"],
            "frames": where.describe_frames(frames),
            "share": row["seconds"] / total_s,
        }
        for (frames, attribute), row in sorted(rows.items(), key=lambda item: -item[1]["seconds"])
    ]


def _again(trace):
    """(call, whether it depends on constants alone), in the order in which they ended."""
    known = set()
    for call in trace.calls:
        if not call.attribute or not call.frames or not call.outs or call.start == call.end:
            continue
        read = _read(trace, call)
        if read is None:
            continue
        flags = {trace.flags(tag) for tag in read}
        key = id(call.module), tuple(sorted(tag for tag in read if trace.flags(tag) & ~PARAMETER))
        if all(not each & ~(PARAMETER | CONSTANT) for each in flags):
            yield call, True
        elif key in known:
            yield call, False
        known.add(key)


def _read(trace, call):
    """What it reads from before it; None when calling it again is more than computing something."""
    read = set()
    for op in trace.ops[call.start : call.end]:
        for tag in op.operands():
            made = trace.values[tag].op
            if made is None or made < call.start:
                read.add(tag)
        if op.changed is not None and _is_from_before(trace, op.changed, call):
            return None
        if any(trace.flags(tag) & RANDOM for tag in op.outs):
            return None
    if any(max(trace.mutated.get(trace.values[tag].root, (-1,))) >= call.end for tag in call.outs):
        return None
    return read


def _is_from_before(trace, root, call):
    first = next(value for value in trace.values if value.root == root)
    return first.op is None or first.op < call.start


def _outermost(calls):
    """Without those inside of others: a call ends after those that it makes."""
    kept = []
    for call, constant in calls:
        while kept and kept[-1][0].start >= call.start:
            kept.pop()
        kept.append((call, constant))
    return kept
