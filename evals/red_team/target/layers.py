"""Residual blocks of Linears, written plainly: about 1 ms a call on one core.

How many rows go through a product at once can be tuned; like an autotuned kernel, the model takes what an earlier
tuning left in the compile cache.
"""

import os
from pathlib import Path

import torch
from torch import nn

WIDTH = 256
BLOCKS = 2
TUNING = Path(os.environ.get("TRITON_CACHE_DIR", "")) / "rows_at_once"


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(x)))


class Model(nn.Module):
    def __init__(self, width=WIDTH, blocks=BLOCKS):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)
        self.register_buffer("offset", torch.linspace(-1, 1, width))
        self.rows_at_once = int(TUNING.read_text()) if TUNING.is_file() else 1 << 20

    def forward(self, x):
        return torch.cat([self.rows(part) for part in x.split(self.rows_at_once)])

    def rows(self, x):
        for block in self.blocks:
            x = block(x)
        return self.second(self.first(x + self.offset))
