"""How the router is used: four tokens at a time, as in decoding."""

import torch
from routing import Router

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TOKENS, HIDDEN = 4, 512


def build():
    torch.manual_seed(0)
    return Router(HIDDEN).to(DEVICE).eval()


def inputs(seed):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(TOKENS, HIDDEN, generator=generator).to(DEVICE),)
