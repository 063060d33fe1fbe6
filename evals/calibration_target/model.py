"""A projection that first wastes a known amount of work."""

import torch
from torch import nn

WASTE = 200


class Wasteful(nn.Module):
    def __init__(self, features: int):
        super().__init__()
        self.projection = nn.Linear(features, features)

    def forward(self, x):
        for _ in range(WASTE):
            self.projection(x)
        return torch.tanh(self.projection(x))
