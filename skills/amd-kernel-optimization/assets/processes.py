# Ratchet: processes.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""Whether processes work on one model together: then parameters are others' business as well."""

import torch


def work_together():
    return torch.distributed.is_available() and torch.distributed.is_initialized()
