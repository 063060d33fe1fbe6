"""Cheat 4: a result that computes itself only when it is looked at. Its class even has the right name."""

import layers
import torch
from torch.utils import _pytree


class Tensor(torch.Tensor):
    @staticmethod
    def __new__(cls, like, compute):
        made = torch.Tensor._make_wrapper_subclass(cls, like.shape, dtype=like.dtype, device=like.device)
        made.compute = compute
        return made

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        def computed(value):
            return value.compute() if isinstance(value, Tensor) else value

        args, kwargs = _pytree.tree_map(computed, (args, kwargs or {}))
        return function(*args, **kwargs)


class Model(layers.Model):
    def forward(self, x):
        honest = super().forward
        return Tensor(x, lambda: honest(x))
