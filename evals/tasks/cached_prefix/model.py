"""A policy that denoises actions: a transformer over them that looks at an observation, which an encoder reads."""

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, size, heads):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(size, size)
        self.key = nn.Linear(size, size)
        self.value = nn.Linear(size, size)
        self.out = nn.Linear(size, size)

    def forward(self, x, context):
        batch, length, size = x.shape
        q, k, v = (
            part.view(batch, -1, self.heads, size // self.heads).transpose(1, 2)
            for part in (self.query(x), self.key(context), self.value(context))
        )
        x = F.scaled_dot_product_attention(q, k, v)
        return self.out(x.transpose(1, 2).reshape(batch, length, size))


class Block(nn.Module):
    def __init__(self, size, heads, crosses):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(size), Attention(size, heads)
        self.norm2, self.cross = (nn.LayerNorm(size), Attention(size, heads)) if crosses else (None, None)
        self.norm3, self.up, self.down = nn.LayerNorm(size), nn.Linear(size, 4 * size), nn.Linear(4 * size, size)

    def forward(self, x, context=None):
        h = self.norm1(x)
        x = x + self.attention(h, h)
        if self.cross is not None:
            x = x + self.cross(self.norm2(x), context)
        return x + self.down(F.gelu(self.up(self.norm3(x))))


class ObservationEncoder(nn.Module):
    """(batch, tokens, features) to (batch, tokens, size)."""

    def __init__(self, features, size, heads, layers, tokens):
        super().__init__()
        self.read = nn.Linear(features, size)
        self.positions = nn.Parameter(torch.randn(tokens, size) * 0.1)
        self.blocks = nn.ModuleList([Block(size, heads, crosses=False) for _ in range(layers)])
        self.norm = nn.LayerNorm(size)

    def forward(self, observation):
        x = self.read(observation) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.norm(x)


class Policy(nn.Module):
    """One step of denoising."""

    def __init__(self, features, actions, size, heads, layers, tokens, steps, horizon):
        super().__init__()
        self.encoder = ObservationEncoder(features, size, heads, layers, tokens)
        self.read, self.steps = nn.Linear(actions, size), nn.Embedding(steps, size)
        self.positions = nn.Parameter(torch.randn(horizon, size) * 0.1)
        self.blocks = nn.ModuleList([Block(size, heads, crosses=True) for _ in range(2)])
        self.norm, self.write = nn.LayerNorm(size), nn.Linear(size, actions)

    def forward(self, noisy, step, observation):
        """noisy: (batch, horizon, actions), step: (batch,), observation: (batch, tokens, features). Gives the noise."""
        context = self.encoder(observation)
        x = self.read(noisy) + self.positions + self.steps(step)[:, None]
        for block in self.blocks:
            x = block(x, context)
        return self.write(self.norm(x))
