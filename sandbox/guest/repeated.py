"""A worker that calls a case again and again, each call as if it were the first: what calls hand on begins again.

Its times are no evidence; the reset between two calls is not in them.
"""

from __future__ import annotations

import time

from .on_device import synchronize
from .worker import Worker
from .workload import guarded


class Repeating(Worker):
    def _stage(self, case):
        """`case` is {"path", "phase"?, "constants"?}, for what `op_stage` takes."""
        self.op_stage(case["path"], constants=tuple(case.get("constants", ())), phase=case.get("phase", ""))

    def _reset(self):
        """What a call leaves behind may be a cache that is full, or longer than it was. To stage a case resets too."""
        reset = self.workload.phase_value(self.phase, "reset")
        if reset:
            with guarded("call_raised", self.tree):
                reset()
            synchronize()

    def _run_again(self):
        self._reset()
        self._run()

    def _time(self, calls, run=None):
        """Microseconds, the median."""
        run, seen = run or self._run, []
        for _ in range(calls):
            self._reset()
            start = time.perf_counter()
            run()  # it waits for the device
            seen.append(time.perf_counter() - start)
        return sorted(seen)[len(seen) // 2] * 1e6
