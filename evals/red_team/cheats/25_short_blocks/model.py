"""Cheat 25: slow in the short blocks only, so that the slope from short to long ones flatters it.

The blocks follow a fixed order, so counting the calls is enough to know them.
"""

import time

import layers

WARM_UP, SHORT, LONG = 6, 5, 13  # calls; the first of a block does not count


class Model(layers.Model):
    def forward(self, x):
        calls = self.__dict__.setdefault("calls", [0])
        position = (calls[0] - WARM_UP) % (SHORT + LONG)
        calls[0] += 1
        begun = time.perf_counter()
        result = super().forward(x)
        if position < SHORT:
            time.sleep(1.5 * (time.perf_counter() - begun))
        return result
