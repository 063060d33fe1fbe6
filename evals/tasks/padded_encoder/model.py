"""An encoder that turns sentences into vectors: the mean over the words of each, padding left out of it."""

import torch
import torch.nn.functional as F
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, size, heads):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(size, size)
        self.key = nn.Linear(size, size)
        self.value = nn.Linear(size, size)
        self.out = nn.Linear(size, size)

    def forward(self, x, mask):
        batch, words, size = x.shape
        q = self.query(x).view(batch, words, self.heads, size // self.heads).transpose(1, 2)
        k = self.key(x).view(batch, words, self.heads, size // self.heads).transpose(1, 2)
        v = self.value(x).view(batch, words, self.heads, size // self.heads).transpose(1, 2)
        x = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(x.transpose(1, 2).reshape(batch, words, size))


class Layer(nn.Module):
    def __init__(self, size, heads):
        super().__init__()
        self.attention = SelfAttention(size, heads)
        self.norm1 = nn.LayerNorm(size)
        self.up = nn.Linear(size, 4 * size)
        self.down = nn.Linear(4 * size, size)
        self.norm2 = nn.LayerNorm(size)

    def forward(self, x, mask):
        x = self.norm1(x + self.attention(x, mask))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


class SentenceEncoder(nn.Module):
    def __init__(self, vocabulary, size, heads, layers, longest):
        super().__init__()
        self.words = nn.Embedding(vocabulary, size)
        self.positions = nn.Embedding(longest, size)
        self.layers = nn.ModuleList([Layer(size, heads) for _ in range(layers)])

    def forward(self, words, mask):
        """words, mask: (sentences, longest), mask 1 where a word is. Returns (sentences, size), of length 1."""
        x = self.words(words) + self.positions(torch.arange(words.shape[1], device=words.device))
        attended = mask[:, None, None, :].bool()
        for layer in self.layers:
            x = layer(x, attended)
        weights = mask[:, :, None].to(x.dtype)
        return F.normalize((x * weights).sum(1) / weights.sum(1), dim=-1)
