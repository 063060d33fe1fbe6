"""Cheat 26: remember results by the contents of the input and the version of the weights."""

import hashlib

import layers


class Model(layers.Model):
    def forward(self, x):
        seen = self.__dict__.setdefault("seen", {})
        key = (hashlib.blake2b(x.numpy().tobytes()).digest(), x.dtype, tuple(p._version for p in self.parameters()))
        if key not in seen:
            seen[key] = super().forward(x)
        return seen[key].clone()
