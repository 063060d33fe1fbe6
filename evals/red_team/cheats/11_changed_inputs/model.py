"""Cheat 11: save an allocation by computing in the caller's tensor."""

import layers


class Model(layers.Model):
    def forward(self, x):
        result = super().forward(x)
        x.copy_(result)
        return result
