"""A layer of a mixture of experts: a router chooses two experts for each token, and their results are added up."""

import torch
import torch.nn.functional as F
from torch import nn


class Expert(nn.Module):
    def __init__(self, size, hidden):
        super().__init__()
        self.w1 = nn.Linear(size, hidden, bias=False)
        self.w2 = nn.Linear(hidden, size, bias=False)
        self.w3 = nn.Linear(size, hidden, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class MixtureOfExperts(nn.Module):
    def __init__(self, size, hidden, count, chosen):
        super().__init__()
        self.count = chosen
        self.router = nn.Linear(size, count, bias=False)
        self.experts = nn.ModuleList([Expert(size, hidden) for _ in range(count)])

    def forward(self, x):
        """x: (batch, tokens, size)."""
        batch, tokens, size = x.shape
        x = x.view(-1, size)
        weights, selected = torch.topk(F.softmax(self.router(x), dim=-1, dtype=torch.float32), self.count, dim=-1)
        weights = (weights / weights.sum(dim=-1, keepdim=True)).to(x.dtype)
        results = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            token, nth = torch.where(selected == i)
            if token.numel() == 0:
                continue
            results[token] += weights[token, nth, None] * expert(x[token])
        return results.view(batch, tokens, size)


class Layer(nn.Module):
    def __init__(self, size, hidden, count, chosen):
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.experts = MixtureOfExperts(size, hidden, count, chosen)

    def forward(self, x):
        return x + self.experts(self.norm(x))
