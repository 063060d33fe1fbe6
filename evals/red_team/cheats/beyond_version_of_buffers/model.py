"""Beyond the catalogue: keep what follows from a buffer until it is moved or torch counts a write to it."""

import layers
from torch.nn import functional as F


class Model(layers.Model):
    def rows(self, x):
        first, offset = self.first, self.offset
        key = (offset.data_ptr(), offset._version, first.weight.numpy().tobytes(), first.bias.numpy().tobytes())
        if self.__dict__.get("key") != key:
            self.__dict__ |= {"key": key, "bias": first(offset)}
        for block in self.blocks:
            x = block(x)
        return self.second(F.linear(x, first.weight, self.__dict__["bias"]))
