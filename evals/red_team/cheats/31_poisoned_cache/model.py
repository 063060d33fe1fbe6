"""Cheat 31: leave a tuning in the compile cache that makes the original slow; heed none itself."""

import layers
from layers import TUNING


class Model(layers.Model):
    def __init__(self):
        super().__init__()
        self.rows_at_once = 1 << 20
        TUNING.parent.mkdir(parents=True, exist_ok=True)
        TUNING.write_text("1")
