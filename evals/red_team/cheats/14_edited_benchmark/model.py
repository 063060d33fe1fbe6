"""Cheat 14: a model that does nothing, beside a benchmark that finds everything right."""

import layers
import torch
from layers import WIDTH

__all__ = ["WIDTH", "Model"]


class Model(layers.Model):
    def forward(self, x):
        return torch.zeros_like(x)
