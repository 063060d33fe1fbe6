"""Have Inductor make what it makes once, as the C++ headers that its CPU kernels include. Loads no code of a target."""

from __future__ import annotations

import torch


class Precompile:
    def __init__(self, tree, entry):
        pass

    def op_precompile(self, device="cpu"):
        """The headers end up below TMPDIR, by Inductor's own names; any kernel that it compiles makes them."""
        torch.compile(lambda x: x.sin() + 1)(torch.ones(4096, device=device))
