# Ratchet: computed.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""Order between streams of a GPU for tensors that are computed on one and read on others. Not while one is captured."""

import torch


class Computed:
    """The moment at which the current streams have computed these tensors."""

    def __init__(self, tensors):
        streams = [torch.cuda.current_stream(device) for device in {each.device for each in tensors if each.is_cuda}]
        self._moments = [(stream, stream.record_event()) for stream in streams]

    def for_here(self, tensors):
        """Let the current streams wait for it, and keep the memory of `tensors` until they have read it."""
        for stream, event in self._moments:
            here = torch.cuda.current_stream(stream.device)
            if here != stream:
                here.wait_event(event)
                for tensor in tensors:
                    if tensor.device == stream.device:
                        tensor.record_stream(here)
