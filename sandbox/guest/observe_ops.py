"""Device time by operation, from torch's own profiler; on a CPU the time of the CPU.

A short table. Categories are given later, to whoever reads it: here an operation has only its name.
"""

from __future__ import annotations

import torch
from torch.profiler import ProfilerActivity, profile

MAX_OPS = 40


class OpTimes:
    """Collects the operations of several runs."""

    def __init__(self):
        self._times = {}  # name -> (self time in µs, calls)

    def add(self, run):
        activities = [ProfilerActivity.CPU]
        on_gpu = torch.cuda.is_available() and torch.cuda.is_initialized()
        if on_gpu:
            activities.append(ProfilerActivity.CUDA)
        with profile(activities=activities) as seen:
            run()
        for event in seen.key_averages():
            spent_us = event.self_device_time_total if on_gpu else event.self_cpu_time_total
            if spent_us > 0:
                old_us, old_count = self._times.get(event.key, (0.0, 0))
                self._times[event.key] = (old_us + spent_us, old_count + event.count)

    def table(self):
        """{"rows": [{"name", "share", "count"}], "other": share of what has no row}, the longest first."""
        total_us = sum(t for t, _ in self._times.values()) or 1.0
        ranked = sorted(self._times.items(), key=lambda item: -item[1][0])
        rows = [{"name": n[:200], "share": t / total_us, "count": c} for n, (t, c) in ranked[:MAX_OPS]]
        return {"rows": rows, "other": sum(t for _, (t, _) in ranked[MAX_OPS:]) / total_us}
