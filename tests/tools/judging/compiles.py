"""A target that torch.compile makes one graph of."""

BENCH = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x * 2.0 + 1.0).sum(-1)

def build():
    return Model()

def inputs(seed):
    return (torch.randn(64, 64, generator=torch.Generator().manual_seed(seed)),)
"""
