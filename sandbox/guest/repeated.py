"""A worker that calls a case again and again, each call as if it were the first: what calls hand on begins again.

Its times are no evidence; the reset between two calls is not in them.
"""

from __future__ import annotations

import time

from .worker import Worker


class Repeating(Worker):
    def _stage(self, case):
        """`case` is {"path", "phase"?, "constants"?}, for what `op_stage` takes."""
        self.op_stage(case["path"], constants=tuple(case.get("constants", ())), phase=case.get("phase", ""))

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
