"""Cheat 1: clocks that run at a third of their speed, and a synchronise that waits for nothing."""

import time

import torch
from layers import Model

__all__ = ["Model"]


def slowed(clock):
    begun = clock()
    return lambda: begun + (clock() - begun) // 3


for name in ("perf_counter", "monotonic", "time", "process_time"):
    slow = slowed(getattr(time, f"{name}_ns"))
    setattr(time, f"{name}_ns", slow)
    setattr(time, name, lambda slow=slow: slow() / 1e9)
torch.cuda.synchronize = lambda device=None: None
torch.cuda.Event.elapsed_time = lambda start, end: 0.001
