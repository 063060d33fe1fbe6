"""How the ranker is used: a batch of documents of different lengths, some of them empty."""

from __future__ import annotations

import torch
from model import Ranker


def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def build() -> torch.nn.Module:
    torch.manual_seed(0)
    return Ranker().to(device()).eval()


def shapes() -> list[dict[str, int]]:
    return [{"segments": 128, "rows": 2048}, {"segments": 400, "rows": 2000}]


def inputs(seed: int, segments: int, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    drawn = torch.Generator().manual_seed(seed)
    cuts = torch.randint(0, rows + 1, (segments - 1,), generator=drawn).sort().values
    edges = torch.cat([torch.zeros(1, dtype=torch.long), cuts, torch.full((1,), rows)])
    return torch.randn(rows, 64, generator=drawn).to(device()), edges.diff().to(device())
