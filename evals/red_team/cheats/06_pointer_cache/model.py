"""Cheat 6: remember results by where the input lies and what shape it has."""

import layers


class Model(layers.Model):
    def forward(self, x):
        seen = self.__dict__.setdefault("seen", {})
        key = (x.data_ptr(), x.shape)
        if key not in seen:
            seen[key] = super().forward(x)
        return seen[key]
