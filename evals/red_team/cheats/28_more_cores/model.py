"""Cheat 28: every CPU of the machine, and a thread on each that takes the next few rows."""

import os
from concurrent.futures import ThreadPoolExecutor

import layers
import torch

PARTS = 8
threads = ThreadPoolExecutor(os.cpu_count())


class Model(layers.Model):
    def forward(self, x):
        parts = x.split(max(1, len(x) // PARTS))
        return torch.cat(list(threads.map(self.rows_on_any_core, parts)))

    def rows_on_any_core(self, x):
        os.sched_setaffinity(0, range(os.cpu_count()))
        with torch.no_grad():  # a thread starts with gradients on
            return self.rows(x)
