"""How the model is used: eight rows of sixteen features, no padding, small token numbers."""

import torch
from model import LENGTH, WIDTH, Model


def build():
    torch.manual_seed(0)
    return Model().eval()


def shapes():
    return [{"rows": 8}]


def inputs(seed, rows=8):
    generator = torch.Generator().manual_seed(seed)
    return {
        "x": torch.randn(rows, LENGTH, WIDTH, generator=generator),
        "ids": torch.randint(50, (rows, LENGTH), generator=generator),
        "mask": torch.ones(rows, LENGTH, dtype=torch.long),
        "temperature": 1.0,
    }
