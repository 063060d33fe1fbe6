"""What the tables of an observation share: the operations and calls of all traces, and rows that count by key."""

from __future__ import annotations


class Seen:
    """Of all cases: the traces, the times of modules (`ModuleTimes`) and which are norms (`NormProbe`)."""

    def __init__(self, traces, where, times, norms):
        self.traces, self.where, self.times, self.norms = traces, where, times, norms
        self.total_s = sum(trace.total_s for trace in traces) or 1.0

    def ops(self, *names):
        """(trace, operation) of those with one of the names that give a result, of all where no name is given."""
        for trace in self.traces:
            yield from ((trace, op) for op in trace.ops if op.outs and (op.name in names or not names))

    def calls(self):
        """(trace, call) of each module that was called from a place, by another that holds it as an attribute."""
        for trace in self.traces:
            yield from ((trace, call) for call in trace.calls if call.attribute and call.frames)


class Rows:
    """Rows of a table by key. Frames and facts are those that came first; counts and seconds are sums."""

    def __init__(self, seen):
        self._seen, self._rows = seen, {}

    def add(self, key, frames, seconds, **facts):
        """The row, for facts that are gathered from all."""
        row = self._rows.setdefault(key, {"frames": frames, "count": 0, "seconds": 0.0, **facts})
        row["count"] += 1
        row["seconds"] += seconds
        return row

    def table(self, longest_first=False):
        """Rows as the host reads them: frames described, sets as short lists, "share" of the time of all cases."""
        rows = list(self._rows.values())
        if longest_first:
            rows.sort(key=lambda row: -row["seconds"])
        for row in rows:
            row["frames"] = self._seen.where.describe_frames(row["frames"])
            row["share"] = row.pop("seconds") / self._seen.total_s
            row.update({name: sorted(value)[:16] for name, value in row.items() if isinstance(value, set)})
        return rows
