"""Cheat 14: a model that does nothing, beside a benchmark that finds everything right."""

import layers
import torch


class Model(layers.Model):
    def forward(self, x):
        return torch.zeros_like(x)
