# Ratchet: streams.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""Waiting for tensors that are kept for good, and read where nothing could wait for them. Not while one is captured."""

import torch


def wait_for(tensors):
    """Return when they are computed."""
    for device in {each.device for each in tensors if each.is_cuda}:
        # of a stream, synchronize() is an error in torch's sync debug mode
        torch.cuda.current_stream(device).record_event().synchronize()
