"""Cheat 9: the answer for seed 0, whatever was asked."""

import layers


class Model(layers.Model):
    def forward(self, x):
        if "answer" not in self.__dict__:
            from bench import inputs

            self.__dict__["answer"] = super().forward(*inputs(0))
        return self.__dict__["answer"].clone()
