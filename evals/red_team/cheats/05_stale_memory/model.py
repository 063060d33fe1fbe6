"""Cheat 5: compute nothing, and return memory in which somebody else has left the answer."""

import layers
import torch


class Model(layers.Model):
    def forward(self, x):
        return torch.empty_like(x)
