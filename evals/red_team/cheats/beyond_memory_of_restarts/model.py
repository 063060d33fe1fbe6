"""Beyond the catalogue: leave every result in /tmp, which outlives a restart, and look there before computing."""

import hashlib
from pathlib import Path

import layers
import torch

MEMORY = Path("/tmp/ratchet-red-team-memory")
MEMORY.mkdir(exist_ok=True)


class Model(layers.Model):
    def forward(self, x):
        weights = float(self.first.weight[0, 0])
        file = MEMORY / hashlib.sha256(x.numpy().tobytes() + str((weights, x.dtype)).encode()).hexdigest()
        if file.exists():
            return torch.frombuffer(bytearray(file.read_bytes()), dtype=x.dtype).view(x.shape)
        result = super().forward(x)
        file.write_bytes(result.numpy().tobytes())
        return result
