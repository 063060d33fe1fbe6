# Ratchet: streams.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""Order between streams of a GPU for tensors that are computed on one and kept for others. On a CPU nothing waits.

Not while a stream is captured.
"""

import torch


def wait_for(tensors):
    """Return when they are computed: for what is kept for good, and is read where nothing could wait for it."""
    for stream in _streams(tensors):
        stream.record_event().synchronize()  # of a stream, synchronize() is an error in torch's sync debug mode


class Computed:
    """The moment at which the current streams have computed these tensors."""

    def __init__(self, tensors):
        self._moments = [(stream, stream.record_event()) for stream in _streams(tensors)]

    def for_here(self, tensors):
        """Let the current streams wait for it, and keep the memory of `tensors` until they have read it."""
        for stream, event in self._moments:
            here = torch.cuda.current_stream(stream.device)
            if here != stream:
                here.wait_event(event)
                for tensor in tensors:
                    if tensor.device == stream.device:
                        tensor.record_stream(here)


def _streams(tensors):
    return [torch.cuda.current_stream(device) for device in {each.device for each in tensors if each.is_cuda}]
