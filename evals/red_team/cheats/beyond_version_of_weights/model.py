"""Beyond the catalogue: multiply two weights into one, again only when one is moved or torch counts a write to it."""

import layers
from torch.nn import functional as F


class Model(layers.Model):
    def rows(self, x):
        first, second = self.first, self.second
        key = [(p.data_ptr(), p._version) for p in (*first.parameters(), *second.parameters())]
        if self.__dict__.get("key") != key:
            baked = second.weight @ first.weight, second(first.bias)
            self.__dict__ |= {"key": key, "baked": baked}
        for block in self.blocks:
            x = block(x)
        return F.linear(x + self.offset, *self.__dict__["baked"])
