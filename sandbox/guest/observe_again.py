"""Modules that compute what they have computed before: of the same tensors twice in a call, or of constants in each.

What a call depends on is what its operations read from before it, whatever its arguments were. One that changes
something outside, draws random numbers, or whose result is written to afterwards, is none.
"""

from __future__ import annotations

from .observe_rows import Rows
from .observe_trace import CONSTANT, PARAMETER, RANDOM


def found(seen):
    """By the place of the call and the module that is called; "share" is what need not be computed."""
    rows = Rows(seen)
    for trace in seen.traces:
        for call, constant in _outermost(_again(trace)):
            facts = {"class": type(call.module).__qualname__, "attribute": call.attribute}
            row = rows.add((call.frames, call.attribute), call.frames, call.seconds(trace), **facts)
            row["constant"] = constant
    return rows.table(longest_first=True)


def _again(trace):
    """(call, whether it depends on constants alone), in the order in which they ended."""
    known = set()
    for call in trace.calls:
        if not call.attribute or not call.frames or not call.outs or call.start == call.end:
            continue
        read = _read(trace, call)
        if read is None:
            continue
        key = id(call.module), tuple(sorted(tag for tag in read if trace.flags(tag) & ~PARAMETER))
        if not any(trace.flags(tag) & ~(PARAMETER | CONSTANT) for tag in read):
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
