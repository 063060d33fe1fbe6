"""How the model is used: rows of floating-point features, a few at a time."""

import torch
from layers import WIDTH
from model import Model


def build():
    torch.manual_seed(0)
    return Model().eval()


def shapes():
    return [{"rows": 32}]


def inputs(seed, rows=32):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(rows, WIDTH, generator=generator),)
