"""Have Inductor precompile the C++ headers that all of its CPU kernels include. Loads no code of a target."""

from __future__ import annotations

import torch


class Precompile:
    def __init__(self, tree, entry):
        pass

    def op_precompile(self):
        """The headers end up below TMPDIR, by Inductor's own names; any kernel that it compiles makes them."""
        torch.compile(lambda x: x.sin() + 1)(torch.ones(4096))
