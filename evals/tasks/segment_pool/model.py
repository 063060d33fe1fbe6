"""Attention pooling over segments of different lengths, as it is often written: a loop over the segments."""

from __future__ import annotations

import torch
from torch import nn


class SegmentPool(nn.Module):
    """One vector for each segment: its rows, weighted by a softmax of their scores."""

    def __init__(self, features: int, heads: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.score = nn.Linear(features, heads)
        self.value = nn.Linear(features, features)

    def forward(self, rows: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """rows (n, features), lengths (segments,) that sum up to n; gives (segments, features)."""
        rows = self.norm(rows)
        scores, values = self.score(rows), self.value(rows)
        heads, width = scores.shape[1], values.shape[1] // scores.shape[1]
        pooled = []
        start = 0
        for length in lengths.tolist():
            if length == 0:
                pooled.append(values.new_zeros(heads * width))
                continue
            weights = torch.softmax(scores[start : start + length], dim=0)
            segment = values[start : start + length].view(length, heads, width)
            pooled.append((weights[:, :, None] * segment).sum(0).reshape(-1))
            start += length
        return torch.stack(pooled)


class Ranker(nn.Module):
    """Scores each segment, of documents, say, by what was pooled of it."""

    def __init__(self, features: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.pool = SegmentPool(features, heads)
        self.out = nn.Sequential(nn.Linear(features, 2 * features), nn.GELU(), nn.Linear(2 * features, 1))

    def forward(self, rows: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return self.out(self.pool(rows, lengths)).squeeze(-1)
