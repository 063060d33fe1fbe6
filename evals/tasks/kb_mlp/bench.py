import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """A pre-normalised gated MLP with a residual connection."""

    def __init__(self, hidden_size, intermediate_size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.eps = eps
        self.gate = nn.Linear(hidden_size, intermediate_size)
        self.up = nn.Linear(hidden_size, intermediate_size)
        self.down = nn.Linear(intermediate_size, hidden_size)

    def forward(self, x):
        residual = x.clone()
        rms = torch.sqrt(torch.mean(x**2, dim=-1, keepdim=True) + self.eps)
        h = x / rms * self.weight
        h = F.silu(self.gate(h)) * self.up(h)
        return self.down(h.contiguous()) + residual


batch_size, tokens = (8, 512) if torch.cuda.is_available() else (4, 16)
hidden_size, intermediate_size = (2048, 7168) if torch.cuda.is_available() else (128, 352)


def get_inputs():
    return [torch.randn(batch_size, tokens, hidden_size)]


def get_init_inputs():
    return [hidden_size, intermediate_size, 1e-6]
