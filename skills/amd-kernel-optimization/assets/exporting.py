# Ratchet: exporting.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""Whether a program is being exported.

Inside torch.compile, `torch.compiler.is_exporting()` is True in some versions (2.11), although nothing is exported.
"""

import torch


def is_exporting():
    return getattr(torch.compiler, "_is_exporting_flag", False)
